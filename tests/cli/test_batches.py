"""The commands for what is held. A flush by a DAG is typed in `test_ahead.py`."""

from __future__ import annotations

from airflow_gobblin.model.batch import Batch
from airflow_gobblin.model.work import ExtractKind
from tests.cli.conftest import CommandLine
from tests.lab import Lab
from tests.protocol.rows import Table


def test_what_is_held_is_pending(lab: Lab, command: CommandLine) -> None:
    held = Lab(lab.folder, store=lab.store, batch=Batch(rows=5))
    held.run(Table("clicks", ExtractKind.APPEND_ONLY, 3), Table("orders", ExtractKind.APPEND_ONLY, 7))
    done = command("pending", "-o", "json")
    assert done.status == 0, done.err
    (one,) = done.json
    assert {name: value for name, value in one.items() if value} == {
        "urn": "clicks",
        "status": "held",
        "waits": "3 rows, about 27 B, wait until 5 rows",
    }


def test_where_the_target_cant_be_read_the_rest_is_pending(lab: Lab, command: CommandLine) -> None:
    held = Lab(lab.folder, store=lab.store, batch=Batch(rows=5))
    held.run(Table("clicks", ExtractKind.APPEND_ONLY, 3), Table("orders", ExtractKind.APPEND_ONLY, 7))
    command.where = (*command.where[:-1], "s3://nobody@bucket/lake")
    done = command("pending", "-o", "json")
    assert (done.status, done.json) == (0, [])
    assert "The held datasets can't be read: " in done.err


def test_a_flush_is_a_run_of_a_dag(lab: Lab, command: CommandLine) -> None:
    lab.run(Table("orders", ExtractKind.APPEND_ONLY, 7))
    done = command("flush", "--reason", "the month is closed", "--yes")
    assert done.status == 1
    assert "Give --dag-id" in done.err
