"""The commands of `docs/commands.md`, typed one after the other."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gobblin.cli.definition import COMMANDS, PIPELINE
from airflow_gobblin.model.watermark import LongWatermark
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.execute import execute_commit_steps
from tests.cli.conftest import CommandLine
from tests.lab import Lab
from tests.protocol.rows import Table
from tests.services.environment import ROOT

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
AHEAD = tuple(
    f"$ airflow gobblin {words} "
    for words in ("check", "plan", "copy", "flush", "verify --dag-id", "take-over", "pipeline")
)
PAGE = (ROOT / "docs" / "commands.md").read_text()


def stuck(lab: Lab, *others: Table) -> None:
    """A dataset that is quarantined: its staged files are gone."""
    lab.ingestion = replace(lab.ingestion, attempts=1)
    opened, plan = lab.decide(Table("public.stock", ExtractKind.APPEND_ONLY, 4), *others)
    (pending,) = lab.journal.history("public.stock").slots
    for step in lab.journal.steps(pending.decision):
        opened.files.unlink(step.source)  # type: ignore[attr-defined]
    for pack in plan.packs:
        execute_commit_steps(opened, plan, pack)


def test_the_page_names_every_command() -> None:
    typed = set(re.findall(r"^\$ airflow gobblin (\S+)", PAGE, re.MULTILINE))
    assert typed == {command.name for command in (*COMMANDS, PIPELINE)}


@pytest.mark.slow
def test_the_commands_of_the_page(
    lab: Lab, command: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tables = [Table(f"public.{name}", ExtractKind.APPEND_ONLY, 10) for name in ("orders", "prices")]
    lab.run(*tables)
    stuck(lab, *tables)
    for language, text in BLOCK.findall(PAGE):
        if language == "json":
            Path("state.json").write_text(text)
            continue
        for line in text.splitlines():
            if line.startswith(AHEAD):
                continue  # they need a DAG, two trees or stages, and are typed where there are such
            name, *words = shlex.split(line.removeprefix("$ airflow gobblin "))
            done = command(name, *words, answer="y\n")
            assert done.status == (name == "audit"), f"{line}\n{done.err}"
    assert "quarantined" in PAGE
    assert lab.reopened().state("public.customers").watermark == LongWatermark(4711)
