"""The end of the demo: the journal's view of the datasets, and the separate checker's verdict on their rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.journal.published import PublishedDataset
from airflow_gobblin.model.watermark import LongWatermark
from tests.checker import compare, parquet_rows, sqlite_rows
from tests.demo.show import table

__all__ = ["DemoError", "check", "edge", "show_datasets"]


class DemoError(Exception):
    """The demo did not show what it must show."""


def show_datasets(journal: Journal, urns: Iterable[str]) -> None:
    """Print the journal's view of each dataset.

    :raises DemoError: one is left unfinished.
    """
    rows: list[tuple[object, ...]] = []
    for urn in urns:
        history, read = journal.history(urn), journal.read_dataset(urn)
        if history.pending is not None:
            raise DemoError(f"slot {history.pending.decision.slot} of {urn} is unfinished")
        rows.append((urn, edge(read), len(history.slots), len(read.files), read.rows))
    table(("dataset", "watermark", "slots", "files", "rows"), rows)


def check(journal: Journal, source: Path, urns: Iterable[str]) -> int:
    """Let the checker compare source and published rows; of ours, it uses only the journal reader's list of files.

    :param source: the SQLite database.
    :return: how many rows are the same.
    :raises DemoError: some aren't.
    """
    verdicts = [compare(urn, sqlite_rows(source, urn), parquet_rows(journal.read_dataset(urn).paths)) for urn in urns]
    table(
        ("dataset", "rows in the source", "rows published", "verdict"),
        [(v.name, v.source_rows, v.published_rows, "the same" if v.ok else "DIFFERENT") for v in verdicts],
    )
    bad = [str(verdict) for verdict in verdicts if not verdict.ok]
    if bad:
        raise DemoError("; ".join(bad))
    return sum(verdict.published_rows for verdict in verdicts)


def edge(dataset: PublishedDataset) -> str:
    """A dataset's watermark, as people read it; snapshots have none."""
    mark = dataset.watermark
    return f"{mark.value:,}" if isinstance(mark, LongWatermark) else "-"
