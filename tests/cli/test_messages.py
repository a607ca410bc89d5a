"""What people are told who type something wrong: one sentence and a way out, in no programmer's words."""

from __future__ import annotations

import re
from pathlib import Path

from airflow_gobblin.model.work import ExtractKind
from tests.cli.command import Done, run
from tests.cli.conftest import CommandLine
from tests.lab import Lab
from tests.protocol.rows import Table

TABLES = (Table("orders", ExtractKind.APPEND_ONLY, 10), Table("prices", ExtractKind.SNAPSHOT_ONLY, 3))
WHY = ("--yes", "--reason", "to try it")
PYTHON = re.compile(r"Traceback|\w(Error|Exception)\b|Errno|\bNone\b|<class|object has no|unhashable|\bstr\b|\bdict\b")
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
    ("history", "order"),
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


def test_a_mistake_is_told_in_plain_words(lab: Lab, command: CommandLine) -> None:
    lab.run(*TABLES)
    before = lab.records()
    for words in MISTAKES:
        expect_readable(command(*words))
        assert lab.records() == before, words


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


def test_a_wrong_place_is_told_in_plain_words(lab: Lab, command: CommandLine, tmp_path: Path) -> None:
    lab.run(*TABLES)
    (tmp_path / "file").write_text("x")
    for journal, name, target in PLACES:
        command.where = ("--journal", journal.format(folder=tmp_path), "--name", name, "--target", target)
        expect_readable(command("datasets"))


def test_a_target_that_is_a_file_is_told_in_plain_words(command: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "file").write_text("x")
    done = run(["gobblin", "copy", str(tmp_path / "source"), str(tmp_path / "file")])
    expect_readable(done)
    assert "Not a directory" in done.err


def test_an_airflow_without_its_database_is_told_in_plain_words(command: CommandLine) -> None:
    done = command("datasets")
    expect_readable(done)
    assert "can't ask Airflow's metadata database: no such table" in done.err
