"""Mirrors to GCS and ADLS, on their emulators."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fsspec.asyn import sync

from airflow_gobblin.admin.actions import Administration
from airflow_gobblin.copy.conversion.converters import Gzip
from airflow_gobblin.copy.finders import EachFolder, WholeTree
from airflow_gobblin.copy.options import Compare, Delete, Existing, Keep
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.model.plan import RunPlan
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.open_job import OpenJob
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.steps.base import StepContext, StepStatus
from airflow_gobblin.steps.placing import PlaceCopyStep
from airflow_gobblin.storage.files import object_copies
from airflow_gobblin.storage.filesystems import open_filesystem
from airflow_gobblin.storage.locations import ObjectLocation
from airflow_gobblin.testing import inprocess
from tests.copy.mirrors import content, copied, statuses
from tests.copy.test_mirror_s3 import write
from tests.proofs import one_in
from tests.services.emulators import Emulator, conditional_proxy, keep_conditions, with_conditions
from tests.services.s3_proxy import Fault, Proxy

pytestmark = one_in(2, "emulator")

OPTIONS: dict[str, Any] = {"existing": Existing.UPDATE, "delete": Delete(1)}


@pytest.fixture(params=["gcs", "azurite"])
def emulator(request: pytest.FixtureRequest) -> Iterator[Emulator]:
    with with_conditions(request.getfixturevalue(request.param)) as emulator:
        yield emulator


@pytest.fixture
def target(emulator: Emulator) -> str:
    return emulator.url(f"{emulator.create_bucket()}/tree")


NewJob = Callable[..., OpenJob]


@pytest.fixture
def new_job(emulator: Emulator, target: str, tmp_path: Path) -> NewJob:
    def new(**options: Any) -> OpenJob:
        mirror = Mirror("there", str(tmp_path / "source"), target, "unused", **{**OPTIONS, **options})
        return inprocess.open_job(mirror, emulator)

    return new


def files_of(found: dict[str, bytes | str]) -> dict[str, bytes | str]:
    return {path: data for path, data in found.items() if data != "/"}


def decide(opened: OpenJob) -> RunPlan:
    """Carry out a run up to its decisions."""
    plan = create_work_units(opened, RunRequest("r"))
    inprocess.extract(opened, plan, opened.connections)
    for pack in plan.packs:
        write_commit_steps(opened, plan, pack)
    return plan


def placing(opened: OpenJob) -> list[PlaceCopyStep]:
    """The steps of the newest slot that place objects."""
    decision = opened.journal.history("there#files").slots[-1].decision
    return [step for step in opened.journal.steps(decision) if isinstance(step, PlaceCopyStep)]


def staged(opened: OpenJob) -> list[str]:
    return [path for path in opened.files.walk("_gobblin") if "/s/" in path]


def test_a_tree_goes_there_and_comes_back_whole(
    emulator: Emulator, target: str, new_job: NewJob, tmp_path: Path
) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    up = new_job(datasets=EachFolder())
    down = inprocess.open_job(Mirror("back", target, str(copy), "unused", WholeTree(), **OPTIONS), emulator)
    write(source / "a/one", "one")
    write(source / "a/deep/two #1?%", "two")
    write(source / "a/empty", "")
    write(source / "b/three ü", "three")
    assert statuses(inprocess.run(up)) == {"a#files": "committed", "b#files": "committed"}
    assert statuses(inprocess.run(down)) == {"back#files": "committed"}
    assert content(copy) == content(source)
    assert statuses(inprocess.run(up)) == {"a#files": "idle", "b#files": "idle"}

    write(source / "a/one", "one has changed")
    (source / "b/three ü").unlink()
    write(source / "b/four", "four")
    assert statuses(inprocess.run(up)) == {"a#files": "committed", "b#files": "committed"}
    assert statuses(inprocess.run(down)) == {"back#files": "committed"}
    assert files_of(content(copy)) == files_of(content(source))
    assert statuses(inprocess.run(up)) == {"a#files": "idle", "b#files": "idle"}
    assert statuses(inprocess.run(down)) == {"back#files": "idle"}
    assert staged(up) == []


@pytest.mark.parametrize(
    "options",
    [{"compare": Compare.CHECKSUM}, {"convert": (Gzip(),)}, {"keep": Keep("tp")}],
    ids=["by checksum", "converted", "with attributes"],
)
def test_the_next_run_finds_nothing_to_do(options: dict[str, Any], new_job: NewJob, tmp_path: Path) -> None:
    opened = new_job(**options)
    for text in (
        ("one",) if "convert" in options else ("one", "another")
    ):  # converted files are recognized by their times
        write(tmp_path / "source/a/one", text)
        assert statuses(inprocess.run(opened)) == {"there#files": "committed"}
        assert statuses(inprocess.run(opened)) == {"there#files": "idle"}
    (unit, *_) = (one for one in opened.journal.history("there#files").slots[-1].decision.units if one.files)
    assert bool(unit.properties) == ("keep" in options), "attributes that aren't kept are reported"


def test_what_somebody_else_wrote_is_neither_replaced_nor_deleted(new_job: NewJob, tmp_path: Path) -> None:
    opened = new_job()
    for name in ("replaced", "deleted", "kept"):
        write(tmp_path / f"source/{name}", name)
    assert statuses(inprocess.run(opened)) == {"there#files": "committed"}
    write(tmp_path / "source/new", "new")
    write(tmp_path / "source/replaced", "replaced by another one")
    (tmp_path / "source/deleted").unlink()
    plan = decide(opened)
    for name, data in (("new", b"theirs"), ("replaced", b"theirs"), ("deleted", b"deleted")):
        if name != "new":
            opened.files.unlink(name)
        with opened.files.create(name) as out:
            out.write(data)
    for pack in plan.packs:
        execute_commit_steps(opened, plan, pack)
    assert [opened.files.read(name) for name in ("new", "replaced", "deleted")] == [b"theirs", b"theirs", b"deleted"]
    assert opened.journal.history("there#files").state.pending is not None
    admin = Administration(opened.journal, opened.files, "ann")
    assert admin.abandon("there#files", "a mistake")[0].abandoned
    assert opened.files.read("replaced") == b"theirs"


def test_an_abandoned_slot_is_shut_out_and_the_next_plan_does_it(new_job: NewJob, tmp_path: Path) -> None:
    opened = new_job()
    for name in ("replaced", "deleted"):
        write(tmp_path / f"source/{name}", name)
    assert statuses(inprocess.run(opened)) == {"there#files": "committed"}
    write(tmp_path / "source/new", "new")
    write(tmp_path / "source/replaced", "replaced by another one")
    (tmp_path / "source/deleted").unlink()
    plan = decide(opened)
    steps = [*opened.journal.steps(opened.journal.history("there#files").slots[-1].decision)]
    admin = Administration(opened.journal, opened.files, "ann")
    assert admin.abandon("there#files", "a mistake")[0].abandoned
    for step in steps:
        if isinstance(step, PlaceCopyStep):
            with pytest.raises(FileNotFoundError):
                step.execute(StepContext(opened.files))
    for pack in plan.packs:
        execute_commit_steps(opened, plan, pack)
    assert sorted(opened.files.identities(".")) == ["deleted", "replaced"]
    assert opened.files.read("replaced") == b"replaced"
    assert statuses(inprocess.run(opened)) == {"there#files": "committed"}
    assert opened.files.read("new") == b"new"
    assert opened.files.identity("deleted") is None
    assert staged(opened) == []


def test_a_run_that_was_killed_is_finished_by_the_next_one(new_job: NewJob, tmp_path: Path) -> None:
    opened = new_job()
    write(tmp_path / "source/one", "one")
    write(tmp_path / "source/two", "two")
    decide(opened)
    assert statuses(inprocess.run(opened)) == {"there#files": "idle"}
    assert [opened.files.read(name) for name in ("one", "two")] == [b"one", b"two"]


# Within one store


LARGE = os.urandom(1_000_001)
CONTENT = {"a": b"a", "b/empty": b"", "b/large": LARGE, "c/ä ~%20+": b"odd"}


@dataclass(frozen=True)
class OneStore:
    """A bucket whose folder `from` has a tree.

    :param proxy: between us and the store.
    """

    emulator: Emulator
    proxy: Proxy
    bucket: str
    somebody: Any

    def mirror(self, **options: Any) -> OpenJob:
        """A mirror to its folder `to`."""
        source, target = (self.emulator.url(f"{self.bucket}/{name}") for name in ("from", "to"))
        return inprocess.open_job(Mirror("there", source, target, "unused", **{**OPTIONS, **options}), self.emulator)

    def put(self, path: str, data: bytes) -> None:
        """Write an object as somebody else."""
        self.somebody.pipe_file(f"{self.bucket}/{path}", data)

    def copied(self) -> dict[str, bytes]:
        return copied(self.somebody, self.bucket)

    def harm_copy(self, fault: Fault) -> tuple[str, str]:
        """Harm the first request to stage the large file.

        :return: the method and the path of such requests.
        """
        gs = self.emulator.scheme == "gs"
        method, path = ("POST", "rewriteTo.*_gobblin.*large") if gs else ("PUT", "_gobblin.*large")
        self.proxy.heal()  # of the faults for a request the first counts
        self.proxy.harm(fault, method, path)
        keep_conditions(self.proxy)
        return method, path


@pytest.fixture(params=["gcs", "azurite"])
def one_store(request: pytest.FixtureRequest) -> Iterator[OneStore]:
    emulator: Emulator = request.getfixturevalue(request.param)
    with conditional_proxy(emulator) as proxy:
        bucket = emulator.create_bucket()
        place = ObjectLocation(emulator.scheme, "lake", bucket)
        store = OneStore(emulator.through(proxy.endpoint), proxy, bucket, open_filesystem(place, emulator))
        for path, data in CONTENT.items():
            store.put(f"from/{path}", data)
        yield store


def test_within_one_store_no_byte_of_a_file_moves_through_us(one_store: OneStore) -> None:
    opened, before = one_store.mirror(), one_store.proxy.moved
    assert statuses(inprocess.run(opened)) == {"there#files": "committed"}
    assert one_store.proxy.moved - before < 500_000 < len(LARGE)
    assert one_store.copied() == CONTENT
    assert statuses(inprocess.run(opened)) == {"there#files": "idle"}
    assert staged(opened) == []


def test_the_store_replaces_what_is_expected_and_keeps_metadata(one_store: OneStore) -> None:
    opened, at = one_store.mirror(), f"{one_store.bucket}/from/b/large"
    assert statuses(inprocess.run(opened)) == {"there#files": "committed"}
    given = {"metadata": {"of": "ours"}} if one_store.emulator.scheme == "gs" else {}  # adlfs has one of its own
    one_store.somebody.pipe_file(at, LARGE[1:], **given)
    assert statuses(inprocess.run(opened)) == {"there#files": "committed"}
    assert one_store.copied() == CONTENT | {"b/large": LARGE[1:]}
    metadata = object_copies._METADATA[one_store.emulator.scheme]
    before, after = metadata(one_store.somebody, at), metadata(one_store.somebody, at.replace("/from/", "/to/"))
    assert before
    assert {**after} == {**before, object_copies.MARK: after[object_copies.MARK]}


def test_a_copy_by_the_store_is_known_by_its_mark(one_store: OneStore) -> None:
    opened = one_store.mirror()
    plan = decide(opened)
    (pack,) = plan.packs
    by_store = [step for step in placing(opened) if step.mark]
    assert {step.target for step in by_store} == {"a", "b/large", "c/ä ~%20+"}
    assert {step.checksum for step in by_store} == {""}
    context = StepContext(opened.files)
    for step in by_store:
        assert step.verify(context) is StepStatus.TODO
        step.execute(context)
        assert step.verify(context) is StepStatus.DONE
    first = by_store[0]
    one_store.put(f"to/{first.target}", b"z" * first.identity.size)
    assert first.verify(context) is StepStatus.CONFLICT, "somebody else's object has no mark"
    opened.files.unlink(first.target)
    assert [done.status.value for done in execute_commit_steps(opened, plan, pack)] == ["committed"]
    assert one_store.copied() == CONTENT


def test_a_copy_whose_answer_is_lost_is_there(one_store: OneStore) -> None:
    """The client sends its request again, which is refused because of its own result."""
    opened = one_store.mirror()
    method, path = one_store.harm_copy(Fault.DROP_ANSWER)
    assert statuses(inprocess.run(opened)) == {"there#files": "committed"}
    asked = [one for one in one_store.proxy.seen if one.method == method and re.search(path, one.path)]
    assert len(asked) == 2, "it was sent again"
    assert one_store.copied() == CONTENT
    assert staged(opened) == []


@pytest.mark.parametrize("data", [LARGE[::-1], LARGE[1:], b"", None], ids=["other", "shorter", "empty", "gone"])
def test_a_source_in_the_store_that_changed_fails_its_file_set(one_store: OneStore, data: bytes | None) -> None:
    opened = one_store.mirror()
    plan = create_work_units(opened, RunRequest("first"))
    if data is None:
        one_store.somebody.rm_file(f"{one_store.bucket}/from/b/large")
    else:
        one_store.put("from/b/large", data)
    results = [result for _, result in inprocess.run_units(opened, plan, opened.connections)]
    (failure,) = (result.failure for result in results if result.failure is not None)
    assert "b/large" in str(failure)
    assert "is gone" in str(failure) or "changed since it was planned" in str(failure)


def test_what_the_store_does_not_copy_goes_through_us(one_store: OneStore) -> None:
    """As where metadata have no room for the mark."""
    one_store.harm_copy(Fault.DENIED)
    opened = one_store.mirror()
    plan = decide(opened)
    steps = {step.target: step for step in placing(opened)}
    assert bool(steps["b/large"].checksum)
    assert not steps["b/large"].mark
    assert steps["a"].mark
    assert [done.status.value for done in execute_commit_steps(opened, plan, plan.packs[0])] == ["committed"]
    assert one_store.copied() == CONTENT


def test_a_blob_of_another_type_goes_through_us(azurite: Emulator) -> None:
    """The store would copy it as of its type, which takes no place of a block blob."""
    bucket = azurite.create_bucket()
    somebody = open_filesystem(ObjectLocation(azurite.scheme, "lake", bucket), azurite)
    container = somebody.service_client.get_container_client(bucket)
    sync(somebody.loop, _append, container.get_blob_client("from/log"), b"line 1")
    source, target = (azurite.url(f"{bucket}/{name}") for name in ("from", "to"))
    opened = inprocess.open_job(Mirror("there", source, target, "unused", **OPTIONS), azurite)
    assert statuses(inprocess.run(opened)) == {"there#files": "committed"}
    placed = sync(somebody.loop, container.get_blob_client("to/log").get_blob_properties)
    assert placed.blob_type == "BlockBlob"
    assert somebody.cat_file(f"{bucket}/to/log") == b"line 1"


async def _append(blob: Any, data: bytes) -> None:
    await blob.create_append_blob()
    await blob.append_block(data)


def test_with_checksums_the_bytes_are_read(one_store: OneStore) -> None:
    opened = one_store.mirror(checksums=True)
    decide(opened)
    steps = placing(opened)
    assert [step.mark for step in steps] == [""] * 4
    assert all(step.checksum for step in steps)
