"""Commands on an ingestion whose journal and target are in an object store, with the credentials of an Airflow connection."""

from __future__ import annotations

import pytest

from tests.cli.conftest import CommandLine
from tests.run.test_object_target import URN, Lake
from tests.services.s3 import S3Server

WHY = ("--yes", "--reason", "on purpose")


@pytest.fixture
def lake(moto: S3Server, command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """An ingestion in a bucket, which the command line selects."""
    made = Lake(moto.access, moto.create_bucket())
    for name, value in moto.access.environment.items():
        monkeypatch.setenv(name, value)
    at(made, command, made.ingestion.journal)
    return made


def at(lake: Lake, command: CommandLine, journal: str) -> None:
    command.where = ("--journal", journal, "--name", "lake", "--target", lake.ingestion.sink.target)


def states(command: CommandLine, *words: str) -> list[str]:
    return [row["state"] for row in command("verify", URN, *words, "-o", "json").json]


def test_objects_are_verified(lake: Lake, command: CommandLine) -> None:
    lake.run()
    assert states(command) == ["ok", "ok"]
    assert states(command, "--quick") == ["ok", "ok"]
    assert command("audit").status == 0
    first, second = lake.files.walk(URN)
    lake.files.unlink(first)
    lake.files.unlink(second)
    with lake.files.create(second) as file:
        file.write(b"other rows")
    assert sorted(states(command)) == ["changed", "missing"]


def test_uploads_that_are_pending_are_shown_and_abandoned(lake: Lake, command: CommandLine) -> None:
    lake.decide()
    (shown,) = command("show", URN, "-o", "json").json
    assert shown["steps"]["states"] == {"todo": 3}
    assert command("abandon", URN, *WHY).status == 0
    assert lake.uploads() == []
