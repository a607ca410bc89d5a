"""A mirror as an author writes it: anything that can't work is refused when the DAG file is parsed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.copy.finders import EachFolder
from airflow_gobblin.copy.options import Compare, Delete, Existing, Keep, Links
from airflow_gobblin.copy.work import CopyWork
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.hooks.ingestion import check_job
from airflow_gobblin.job import Job
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.model import wire
from airflow_gobblin.model.policy import CommitPolicy

PHOTOS = Mirror(
    name="photos",
    source="s3://photos_s3@photos/2026",
    target="file:///srv/photos",
    datasets=EachFolder(),
    include=("**/*.jpg",),
    exclude=("**/tmp/**",),
    compare=Compare.SIZE_AND_TIME,
    existing=Existing.UPDATE,
    delete=Delete(at_most=0.05),
    keep=Keep("t"),
    journal="sqlite:////srv/journal.db",
)


def test_a_mirror_is_a_job_whose_work_is_sent_to_spark_whole() -> None:
    job: Job = PHOTOS
    check_job(job)
    work = PHOTOS.work
    assert wire.loads(wire.dumps(work), CopyWork, "the work") == work
    assert (work.target, work.workspace) == ("file:///srv/photos", "file:///srv/photos")
    assert work.connection_ids == ("photos_s3",)
    assert job.policy is CommitPolicy.FULL, "a file set is published whole or not at all"


def test_options_may_be_given_by_name() -> None:
    named: Any = {"compare": "checksum", "existing": "skip", "links": "copy"}
    found = replace(PHOTOS, **named)
    assert (found.compare, found.existing, found.links) == (Compare.CHECKSUM, Existing.SKIP, Links.COPY)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"name": "My Photos"}, r"ingestion name 'My Photos'"),
        ({"source": "photos"}, r"source 'photos' of mirror 'photos': it is not an absolute path"),
        ({"target": "srv"}, r"target 'srv' of mirror 'photos': it is not an absolute path"),
        ({"target": "sftp://host/photos"}, r"mirrors read from sftp://, and don't write there"),
        ({"source": "sftp://ann:secret@host/photos"}, r"the part before its '@' is not the id of a connection"),
        ({"source": "https://host/../photos"}, r"it must name a host and a plain path"),
        ({"source": "/srv/photos"}, r"target 'file:///srv/photos' of mirror 'photos': it is the source"),
        ({"source": "file:///srv"}, r"target 'file:///srv/photos' of mirror 'photos': .* or lies in it"),
        ({"source": "/srv/photos/../photos/2026"}, r"source .* of mirror 'photos': it lies in the target"),
        ({"target": "s3://other@photos/2026/copy"}, r"target .* or lies in it"),
        ({"target": "s3://photos"}, r"source .* lies in the target 's3://photos'"),
        (
            {"workspace": "/srv/work"},
            r"workspace '/srv/work' of mirror 'photos': it is neither the target nor a folder above",
        ),
        ({"workspace": "s3://photos"}, r"workspace 's3://photos'"),
        (
            {"compare": "size"},
            r"compare='size' of mirror 'photos': there is no such option. Use one of 'size_and_time'",
        ),
        ({"include": "**/*.jpg"}, r"include='\*\*/\*.jpg' of mirror 'photos': it is not a tuple"),
        ({"include": ("[",)}, r"file pattern '\['"),
        ({"exclude": ("a}",)}, r"file pattern 'a}'"),
        ({"first": ("{a",)}, r"file pattern '{a'"),
        ({"keep": "t"}, r"keep='t' of mirror 'photos': it is no Keep\. Write keep=Keep\('t'\)"),
        ({"delete": 0.05}, r"delete=0\.05 of mirror 'photos': it is no Delete\. Write delete=Delete\(0\.05\)"),
        ({"limits": {"files": 3}}, r"limits={'files': 3} of mirror 'photos': it is no RunLimits"),
        ({"max_packs": 0}, r"max_packs=0 of mirror 'photos': it is too small"),
        ({"datasets": object()}, r"the class is not registered"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        replace(PHOTOS, **options)


@pytest.mark.parametrize("workspace", ["/srv", "file:///srv/", "/", "/srv/photos"])
def test_our_own_files_may_be_above_the_target(workspace: str) -> None:
    check_job(replace(PHOTOS, workspace=workspace))


@pytest.mark.parametrize(
    ("source", "connections", "modules"),
    [
        ("/srv/camera", (), ()),
        ("s3://shop@photos", ("shop",), ("s3fs",)),
        ("abfs://photos", (), ("adlfs",)),
        ("sftp://shop@host:2222/photos", ("shop",), ("asyncssh",)),
        ("https://host/photos", (), ("requests",)),
    ],
)
def test_spark_needs_the_sources_client_and_its_connection(
    source: str, connections: tuple[str, ...], modules: tuple[str, ...]
) -> None:
    work = replace(PHOTOS, source=source).work
    assert work.connection_ids == connections
    assert work.modules(NoConnections()) == modules
