"""Texts of Spark's failures, each cut down to one line."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from airflow_gobblin.spark.failures import cause_of
from airflow_gobblin.spark.jobs import TaskRow, collect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def raises(_: int) -> Iterator[TaskRow]:
    yield "some", b"rows"
    raise ValueError("it is bad")


def dies(_: int) -> Iterator[TaskRow]:
    yield "some", b"rows"
    os._exit(3)


@pytest.mark.parametrize(
    ("function", "end"),
    [(raises, r": ValueError: it is bad$"), (dies, r"SparkException: Python worker exited unexpectedly \(crashed\)")],
    ids=["raises", "dies"],
)
def test_a_task_that_fails(spark: SparkSession, function: Callable[[int], Iterator[TaskRow]], end: str) -> None:
    with pytest.raises(Exception, match="Job aborted") as caught:
        collect(spark, function, range(1))
    assert re.match(rf"Job aborted due to stage failure: Task 0 in stage .*{end}", cause_of(caught.value))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "RuntimeError"),
        ("one\n\n  two\nthree", "one two"),
        (
            "[X] It failed:\nTraceback (most recent call last):\n  File\nKeyError: 'a'\n\tat java",
            "[X] It failed: KeyError: 'a'",
        ),
        ("An error occurred while calling o1.f.\n: java.io.IOException: no space\n\tat a", "no space at a"),
    ],
)
def test_a_text(text: str, cause: str) -> None:
    assert cause_of(RuntimeError(text)) == cause
