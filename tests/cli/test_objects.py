"""Commands on an ingestion whose journal and target are in an object store, with the credentials of an Airflow connection."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.services.s3 import S3Server
from tests.test_object_target import ROWS, URN, Lake

WHY = ("--yes", "--reason", "on purpose")


@pytest.fixture
def lake(moto: S3Server, command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """An ingestion in a bucket, which the command line is at."""
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


def test_published_objects_are_taken_over_by_another_journal(
    lake: Lake, command: CommandLine, moto: S3Server, tmp_path: Path
) -> None:
    lake.run()
    assert command("export", "--file", str(tmp_path / "state.json")).status == 0
    lake.ingestion = replace(lake.ingestion, journal=moto.access.url(f"{lake.bucket}/there"))
    at(lake, command, lake.ingestion.journal)
    assert command("import", str(tmp_path / "state.json"), *WHY).status == 0
    assert states(command) == ["ok", "ok"]
    lake.run(replace(ROWS, rows=9))
    assert lake.rows() == replace(ROWS, rows=9).all_rows()
