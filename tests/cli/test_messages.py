"""Messages to people who type something wrong: one sentence and a way out, in no programmer's words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from airflow.utils import cli_action_loggers

from airflow_gobblin.model.work import ExtractKind
from tests.cli.command import Done, run
from tests.cli.conftest import CommandLine
from tests.lab import Lab
from tests.protocol.rows import Table
from tests.services.processes import free_port

TABLES = (Table("orders", ExtractKind.APPEND_ONLY, 10), Table("prices", ExtractKind.SNAPSHOT_ONLY, 3))
WHY = ("--yes", "--reason", "to try it")
PYTHON = re.compile(
    r"Traceback|\w(Error|Exception)\b|Errno|\bNone\b|<class|object has no|unhashable|\bstr\b|\bdict\b"
    r"|isoformat|codec|surrogate|\bimport is\b|\w\(\w+="
)
STOPS = re.compile(r"(?<![.\[])\.\.(?![./\]])|[?!]\.|\. \.|: \.( |$)")


def expect_readable(done: Done) -> None:
    assert done.status in (1, 2), done
    assert not PYTHON.search(done.err.removeprefix("Error: ")), done.err
    assert not STOPS.search(done.err), done.err


MISTAKES = (
    ("datasets", "--offset", "-1"),
    ("datasets", "--limit", "x"),
    ("datasets", "--module", "no.such.module"),
    ("datasets", "--dag-id", "shop"),
    ("show", "order"),
    ("show", ""),
    ("datasets", "--module", ".x"),
    ("history", "order"),
    ("history", "orders", "--limit", "9" * 30),
    ("history", "orders", "--offset", "9" * 30),
    ("history", "\udcff"),
    ("verify", "order"),
    ("audit", "order"),
    ("rewind", "orders", "--to", "x", *WHY),
    ("rewind", "orders", "--to", "99", *WHY),
    ("rewind", "orders", "--to", "2026-01-01", *WHY),
    ("rewind", "orders", "--to", "[1]", *WHY),
    ("rewind", "prices", "--to", "1", *WHY),
    ("set-watermark", "orders", "--to", "3", *WHY),
    ("set-watermark", "orders", "--to", "9" * 30, *WHY),
    ("set-watermark", "orders", "--to", "20", "--kind", "timestamp", *WHY),
    ("set-watermark", "new", "--to", "3", *WHY),
    ("set-watermark", "new", "--to", "3", "--kind", "lon", *WHY),
    ("set-watermark", "new", "--to", "2026-13-01T00:00Z", "--kind", "timestamp", *WHY),
    ("set-watermark", "new", "--to", "[]", "--kind", "multi_long", *WHY),
    ("set-watermark", "new", "--to", '{"a": 1, "a": 2}', "--kind", "long", *WHY),
    ("drop", *WHY),
    ("drop", "order", *WHY),
    ("release", "orders", *WHY),
    ("pause", "order", *WHY),
    ("pause", "orders", "--yes", "--reason", " "),
    ("resume", "orders", *WHY),
    ("flush", *WHY),
    ("abandon", "orders", *WHY),
    ("abandon", "order", *WHY),
    ("release-claim", "../x", *WHY),
    ("export", "--urn", "order"),
    ("export", "--file", "/no/where/x"),
    ("import", "/no/where", *WHY),
    ("import", "/", *WHY),
)


def test_a_mistake_is_reported_in_plain_words(lab: Lab, command: CommandLine) -> None:
    lab.run(*TABLES)
    before = lab.records()
    for words in MISTAKES:
        expect_readable(command(*words))
        assert lab.records() == before, words


OF_STAGES = (
    ("show", "lab"),
    ("show", ""),
    ("show", "LAB"),
    ("versions", "lab"),
    ("versions", "no-stage"),
    ("why", "no-stage"),
    ("why", "../x"),
    ("rewind", "lab", *WHY),
    ("rewind", "lab", "--start", *WHY),
    ("rewind", "lap", "--start", *WHY),
    ("rewind", "lab", "--to", "x", *WHY),
    ("rewind", "lab", "--to", "2026-13-01", *WHY),
    ("rewind", "lab", "--start", "--to", "2026-01-01", *WHY),
)


@pytest.mark.slow
def test_a_mistake_about_a_stage_is_reported_in_plain_words(lab: Lab, command: CommandLine) -> None:
    lab.run(*TABLES)
    before = lab.records()
    command.where = tuple(word for word in command.where if word not in ("--name", "lab"))
    for words in OF_STAGES:
        done = command("pipeline", *words)
        expect_readable(done)
        assert done.out == "", words
        assert lab.records() == before, words
    assert "it is not a stage, and has sealed no version" in command("pipeline", "rewind", "lab", "--start", *WHY).err


OF_COPIES = (
    ("--delete", "nan"),
    ("--delete", "5"),
    ("--delete", "much"),
    ("--bandwidth", "-5"),
    ("--bandwidth", "9" * 400),
    ("--at-least-bytes", "9" * 400 + "T"),
    ("--at-least-files", "9" * 30),
    ("--jobs", "0"),
    ("--jobs", "9" * 30),
    ("--convert", "x"),
    ("--convert", "zstd:99"),
    ("--convert", "zstd:" + "9" * 5000),
    ("--keep", "xyz"),
    ("--filter-file", "/no/where"),
    ("--include", "["),
    ("--backup", ""),
    ("--workspace", "/no/where"),
    ("--workspace", "ftp://x/y"),
    ("--journal", "x/y"),
)


def test_a_mistake_about_a_copy_is_reported_in_plain_words(command: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/file").write_text("x")
    for words in OF_COPIES:
        expect_readable(run(["gobblin", "copy", str(tmp_path / "source"), str(tmp_path / "target"), *words]))
        assert not (tmp_path / "target").exists(), words


@pytest.mark.slow
def test_a_server_that_is_not_there_is_reported_in_plain_words(command: CommandLine, tmp_path: Path) -> None:
    """Its clients wrap the system's message three times, in words of their own."""
    done = run(["gobblin", "copy", f"http://127.0.0.1:{free_port()}/x", str(tmp_path / "target")])
    expect_readable(done)
    assert "Connection refused" in done.err
    assert "HTTPConnection" not in done.err.rpartition("Error: ")[2]


SECRETS = (
    ("datasets", "--search", "postgresql://ann:{}@db.example/shop"),
    ("pause", "orders", "--yes", "--reason", "the database is postgresql://ann:{}@db.example/shop now"),
    ("history", "orders", "--module", "x?password={}"),
)
OF_COPIES_WITH_SECRETS = (
    ("--workspace", "s3://key:{}@bucket/x"),
    ("--backup", "s3://key:{}@bucket/x"),
    ("--filter-file", "http://key:{}@host/x"),
    ("--include", "https://key:{}@host/x"),
)


def test_an_argument_that_shows_a_password_is_refused_before_airflow_logs_it(
    lab: Lab, command: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lab.run(*TABLES)
    logged: list[object] = []
    monkeypatch.setattr(cli_action_loggers, "on_pre_execution", lambda **arguments: logged.append(arguments))
    for words in SECRETS:
        done = command(*(word.format("s3cret") for word in words))
        expect_readable(done)
        assert "s3cret" not in done.err, words
    for option, value in OF_COPIES_WITH_SECRETS:
        done = run(["gobblin", "copy", str(tmp_path), str(tmp_path / "target"), option, value.format("s3cret")])
        expect_readable(done)
        assert "s3cret" not in done.err, option
    assert not logged
    assert command("show", "ftp://a:b@c").status == 1, "a URN is shown everywhere anyway"
    assert len(logged) == 1


PLACES = (
    ("", "lab", "/lake"),
    ("x/y", "lab", "/lake"),
    ("http://x/y", "lab", "/lake"),
    ("file:///no/where", "lab", "/lake"),
    ("{folder}/journl", "lab", "/lake"),
    ("sqlite:////no/where.db", "lab", "/lake"),
    ("sqlite:///{folder}/file", "lab", "/lake"),
    ("{folder}/file", "lab", "/lake"),
    ("postgresql://127.0.0.1:1/x", "lab", "/lake"),
    ("{folder}/journal", "LAB", "/lake"),
    ("{folder}/journal", "lap", "/lake"),
    ("{folder}/journal", "lab", "lake"),
    ("{folder}/journal", "lab", "ftp://x/y"),
)
"""Journal, name and target."""


def test_a_wrong_place_is_reported_in_plain_words(lab: Lab, command: CommandLine, tmp_path: Path) -> None:
    lab.run(*TABLES)
    (tmp_path / "file").write_text("x")
    for journal, name, target in PLACES:
        command.where = ("--journal", journal.format(folder=tmp_path), "--name", name, "--target", target)
        expect_readable(command("datasets"))


def test_a_target_that_is_a_file_is_reported_in_plain_words(command: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "file").write_text("x")
    done = run(["gobblin", "copy", str(tmp_path / "source"), str(tmp_path / "file")])
    expect_readable(done)
    assert "Not a directory" in done.err


def test_an_airflow_without_its_database_is_reported_in_plain_words(command: CommandLine) -> None:
    done = command("datasets")
    expect_readable(done)
    assert "can't ask Airflow's metadata database: no such table" in done.err
