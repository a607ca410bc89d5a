"""Where a part of a job runs on Spark."""

from __future__ import annotations

from enum import StrEnum


class Site(StrEnum):
    """Where units of work run, or where a commit step is carried out."""

    TASK = "task"
    """In a Spark task; a commit step also on a worker."""
    DRIVER = "driver"
    """On Spark's driver, which has a session: units as DataFrames, and steps that need Spark itself."""
