"""A task `finish` beside others, in the first run of an ingestion."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.connections import NoConnections
from airflow_gobblin.journal.journal import Journal
from airflow_gobblin.model.work import ExtractKind
from airflow_gobblin.run.finish import finish
from airflow_gobblin.testing import inprocess
from tests.lab import Lab
from tests.protocol.rows import Table

A = Table("a", ExtractKind.APPEND_ONLY, 4)


def test_what_is_published_after_the_journal_was_read_is_reported_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plan is swept by then, too: that doesn't mean that nothing was published by it."""
    lab = Lab(tmp_path, A)
    opened, plan = lab.extracted(A)
    read, happened = Journal.histories, list[str]()

    def histories(journal: Journal, *of: Any, **how: Any) -> Iterator[Any]:
        if happened:
            return read(journal, *of, **how)
        happened.append("the others")
        inprocess.publish(opened, plan, NoConnections())
        finish(opened, plan)
        return iter(())  # as it was before

    monkeypatch.setattr(Journal, "histories", histories)
    (report,) = finish(lab.opened(), plan)
    assert opened.staging.tokens() == ()
    assert (report.status, report.slot) == ("committed", 1)
