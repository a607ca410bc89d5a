"""Contract suites for sources, sinks, steps, stores, file systems, tables, trees, and what runs them without Airflow and Spark.

A suite is a class of tests. Derive a class named `Test…` from it, and override the fixtures that it names::

    from airflow_gobblin.testing import SinkContract

    class TestJsonLines(SinkContract):
        @pytest.fixture
        def sink(self, target: str) -> JsonLines:
            return JsonLines(target)

Only tests import this package, which needs pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from airflow_gobblin.testing.failing_files import FailingFiles
    from airflow_gobblin.testing.files import FilesContract, FoldersContract, UploadsContract
    from airflow_gobblin.testing.finders import FinderContract
    from airflow_gobblin.testing.memory_files import MemoryFiles, MemoryObjects
    from airflow_gobblin.testing.memory_table import MemoryTable
    from airflow_gobblin.testing.sinks import SinkContract
    from airflow_gobblin.testing.sources import PositionedSourceContract, RangeSourceContract, SourceContract
    from airflow_gobblin.testing.steps import FencedStepContract, StepContract
    from airflow_gobblin.testing.stores import StoreContract
    from airflow_gobblin.testing.tables import TableBench, TableContract
    from airflow_gobblin.testing.trees import TreeContract
    from airflow_gobblin.testing.works import WorkContract

__all__ = [
    "FailingFiles",
    "FencedStepContract",
    "FilesContract",
    "FinderContract",
    "FoldersContract",
    "MemoryFiles",
    "MemoryObjects",
    "MemoryTable",
    "PositionedSourceContract",
    "RangeSourceContract",
    "SinkContract",
    "SourceContract",
    "StepContract",
    "StoreContract",
    "TableBench",
    "TableContract",
    "TreeContract",
    "UploadsContract",
    "WorkContract",
]

_MODULES = {
    "FailingFiles": "failing_files",
    "FencedStepContract": "steps",
    "FilesContract": "files",
    "FinderContract": "finders",
    "FoldersContract": "files",
    "MemoryFiles": "memory_files",
    "MemoryObjects": "memory_files",
    "MemoryTable": "memory_table",
    "PositionedSourceContract": "sources",
    "RangeSourceContract": "sources",
    "SinkContract": "sinks",
    "SourceContract": "sources",
    "StepContract": "steps",
    "StoreContract": "stores",
    "TableBench": "tables",
    "TableContract": "tables",
    "TreeContract": "trees",
    "UploadsContract": "files",
    "WorkContract": "works",
}
"""The module below this package that each name comes from."""

# Pytest explains the assertions of a module only if it is registered before its import.
pytest.register_assert_rewrite(*sorted({f"{__name__}.{module}" for module in _MODULES.values()}))


if not TYPE_CHECKING:  # whose checkers would accept any name

    def __getattr__(name: str) -> object:
        """Import a name from its module, once.

        :raises AttributeError: there is no such name.
        """
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
