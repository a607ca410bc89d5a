"""Commands as people type them, on ingestions of a few rows whose journals and targets are on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_gobblin.storage.stores import open_store
from tests.cli.command import Done, run
from tests.lab import Lab
from tests.protocol.rows import Table


class CommandLine:
    """Run commands in this process. :ivar where: words at the end of each, which select its ingestion."""

    def __init__(self) -> None:
        self.where: tuple[str, ...] = ()

    def __call__(
        self, name: str, *arguments: str, answer: str = "", meanwhile: Callable[[], object] | None = None
    ) -> Done:
        """Run `airflow gobblin <name> …`.

        :param answer: what is typed;
        :param meanwhile: what happens before it is.
        """
        return run(["gobblin", name, *arguments, *self.where], answer, meanwhile)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line, without an ingestion yet."""
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")  # as the commands set it; gone after the test
    return CommandLine()


@pytest.fixture
def lab(tmp_path: Path, command: CommandLine) -> Lab:
    """An ingestion without tables yet, which the command line selects."""
    return on_disk(tmp_path, command)


def on_disk(folder: Path, command: CommandLine | None = None, *tables: Table) -> Lab:
    """An ingestion whose journal and target are below a folder."""
    made = Lab(folder / "lake", *tables, store=open_store(str(folder / "journal")))
    if command is not None:
        journal, target = (folder / "journal").as_uri(), str(folder / "lake")
        command.where = ("--journal", journal, "--name", "lab", "--target", target)
    return made
