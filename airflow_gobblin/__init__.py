"""Exactly-once ingestion for Airflow and Spark.

Everything that authors of DAGs, sources, sinks, converters, checks, steps and works import, and readers of a journal, is imported
from here::

    from airflow_gobblin import GobblinIngestion, Ingestion, ParquetSink, SqlSource

A module is loaded when one of its names is first asked for, so that none loads more than it needs: names of the core load neither
Airflow nor Spark. Modules below are free to move.

Source: https://peps.python.org/pep-0562/; model: ``airflow.sdk``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_gobblin.admin.actions import Administration
    from airflow_gobblin.connections import Connections, GuardedConnections
    from airflow_gobblin.copy.checks import (
        AtLeastBytes,
        AtLeastFiles,
        Checksums,
        CopiedFile,
        CopiedFileSet,
        FileSetCheck,
    )
    from airflow_gobblin.copy.conversion.archives import Unpack
    from airflow_gobblin.copy.conversion.converters import (
        Bunzip2,
        Bzip2,
        ConnectedConverter,
        FileConverter,
        Gunzip,
        Gzip,
        Unzstd,
        Zstd,
    )
    from airflow_gobblin.copy.conversion.openpgp import CheckDetachedSignature, CheckSignature, Decrypt, Encrypt
    from airflow_gobblin.copy.entries import Entry, EntryKind
    from airflow_gobblin.copy.finders import (
        CopyableDataset,
        DatasetFinder,
        DatePartitions,
        EachFolder,
        FileSet,
        Glob,
        Manifest,
        NewestVersions,
        Ready,
        WholeTree,
    )
    from airflow_gobblin.copy.options import Compare, Delete, Existing, Keep, Links
    from airflow_gobblin.copy.registering import HiveTable, PlacedFileSet, Registration
    from airflow_gobblin.copy.trees.base import Tree
    from airflow_gobblin.errors import (
        AlreadyCoveredError,
        CheckFailedError,
        ClaimError,
        ConfigurationError,
        DifferenceError,
        EnvironmentMismatchError,
        GobblinError,
        IncompleteRunError,
        LostRaceError,
        MissingExtraError,
        NeverPublishedError,
        NoSuchRangeError,
        NotFoundError,
        OverlapError,
        PausedError,
        QuarantinedError,
        RecordError,
        Remedy,
        SchemaConflictError,
        SourceChangedError,
        SourceDataError,
        SourceError,
        StepConflictError,
        StepError,
        StepFencedError,
        StepLostError,
        StoreError,
        TargetError,
        UnknownKindError,
        UnknownOutcomeError,
        UnreliableStoreError,
    )
    from airflow_gobblin.events.assets import dataset_asset
    from airflow_gobblin.events.notifier import IngestionNotifier
    from airflow_gobblin.hooks.connections import AirflowConnections
    from airflow_gobblin.ingestion import Ingestion
    from airflow_gobblin.job import Attempt, DatasetLike, Held, Job, Work, WorkPlan, WorkRequest
    from airflow_gobblin.journal.journal import Journal
    from airflow_gobblin.journal.published import PublishedDataset, PublishedFile
    from airflow_gobblin.mirror import Mirror
    from airflow_gobblin.model.batch import Backlog, Batch
    from airflow_gobblin.model.coverage import Coverage, Range
    from airflow_gobblin.model.failure import Failure
    from airflow_gobblin.model.holds import Holds
    from airflow_gobblin.model.limits import RunLimits
    from airflow_gobblin.model.naming import dataset_key
    from airflow_gobblin.model.plan import Plan
    from airflow_gobblin.model.policy import CommitPolicy
    from airflow_gobblin.model.request import RangeRequest
    from airflow_gobblin.model.site import Site
    from airflow_gobblin.model.state import DatasetState
    from airflow_gobblin.model.watermark import (
        Json,
        LongWatermark,
        MultiLongWatermark,
        TimestampWatermark,
        Watermark,
        register_watermark,
    )
    from airflow_gobblin.model.wire import record
    from airflow_gobblin.model.work import (
        Dataset,
        Extract,
        ExtractKind,
        Limits,
        StagedFile,
        UnitResult,
        UnitState,
        UnitSummary,
        WorkUnit,
    )
    from airflow_gobblin.operators.extract import ExtractOperator
    from airflow_gobblin.operators.run_requests import ingestion_params
    from airflow_gobblin.operators.spark_options import SparkOptions
    from airflow_gobblin.operators.task_group import GobblinIngestion, GobblinMirror
    from airflow_gobblin.operators.tasks import (
        CreateWorkUnitsOperator,
        ExecuteCommitStepsOperator,
        FinishOperator,
        VerifyRecoverOperator,
        WriteCommitStepsOperator,
    )
    from airflow_gobblin.operators.yaml_ingestions import YAML_SCHEMA, YamlIngestion, load_ingestions
    from airflow_gobblin.plugins.timetables import DatasetCronTimetable
    from airflow_gobblin.rows.converters.base import Converter, OnBadRow, RowCheck
    from airflow_gobblin.rows.converters.checks import InRange, Matches, NotNull
    from airflow_gobblin.rows.converters.columns import AddColumn, DropColumns, RenameColumns
    from airflow_gobblin.rows.sinks.base import Layout, Sink, Writer, publish_units
    from airflow_gobblin.rows.sinks.parquet import ParquetSink
    from airflow_gobblin.rows.sources.base import (
        CheckableSource,
        Consistency,
        DatasetPlan,
        PlacedReader,
        PlanRequest,
        RangeSource,
        Reader,
        ReadRequest,
        SnapshotSource,
        Source,
    )
    from airflow_gobblin.rows.sources.kafka import Isolation, KafkaSource, OutOfRange, Start
    from airflow_gobblin.rows.sources.sql import SqlSource
    from airflow_gobblin.rows.sources.sql.tables import Predicate, SqlTable
    from airflow_gobblin.steps.base import CommitStep, FenceResult, Phase, StepContext, StepStatus, TargetFile
    from airflow_gobblin.steps.publishing import publish_file, publish_folder
    from airflow_gobblin.storage.files.base import FileIdentity, Files, StagedOutput

__all__ = [
    "YAML_SCHEMA",
    "AddColumn",
    "Administration",
    "AirflowConnections",
    "AlreadyCoveredError",
    "AtLeastBytes",
    "AtLeastFiles",
    "Attempt",
    "Backlog",
    "Batch",
    "Bunzip2",
    "Bzip2",
    "CheckDetachedSignature",
    "CheckFailedError",
    "CheckSignature",
    "CheckableSource",
    "Checksums",
    "ClaimError",
    "CommitPolicy",
    "CommitStep",
    "Compare",
    "ConfigurationError",
    "ConnectedConverter",
    "Connections",
    "Consistency",
    "Converter",
    "CopiedFile",
    "CopiedFileSet",
    "CopyableDataset",
    "Coverage",
    "CreateWorkUnitsOperator",
    "Dataset",
    "DatasetCronTimetable",
    "DatasetFinder",
    "DatasetLike",
    "DatasetPlan",
    "DatasetState",
    "DatePartitions",
    "Decrypt",
    "Delete",
    "DifferenceError",
    "DropColumns",
    "EachFolder",
    "Encrypt",
    "Entry",
    "EntryKind",
    "EnvironmentMismatchError",
    "ExecuteCommitStepsOperator",
    "Existing",
    "Extract",
    "ExtractKind",
    "ExtractOperator",
    "Failure",
    "FenceResult",
    "FileConverter",
    "FileIdentity",
    "FileSet",
    "FileSetCheck",
    "Files",
    "FinishOperator",
    "Glob",
    "GobblinError",
    "GobblinIngestion",
    "GobblinMirror",
    "GuardedConnections",
    "Gunzip",
    "Gzip",
    "Held",
    "HiveTable",
    "Holds",
    "InRange",
    "IncompleteRunError",
    "Ingestion",
    "IngestionNotifier",
    "Isolation",
    "Job",
    "Journal",
    "Json",
    "KafkaSource",
    "Keep",
    "Layout",
    "Limits",
    "Links",
    "LongWatermark",
    "LostRaceError",
    "Manifest",
    "Matches",
    "Mirror",
    "MissingExtraError",
    "MultiLongWatermark",
    "NeverPublishedError",
    "NewestVersions",
    "NoSuchRangeError",
    "NotFoundError",
    "NotNull",
    "OnBadRow",
    "OutOfRange",
    "OverlapError",
    "ParquetSink",
    "PausedError",
    "Phase",
    "PlacedFileSet",
    "PlacedReader",
    "Plan",
    "PlanRequest",
    "Predicate",
    "PublishedDataset",
    "PublishedFile",
    "QuarantinedError",
    "Range",
    "RangeRequest",
    "RangeSource",
    "ReadRequest",
    "Reader",
    "Ready",
    "RecordError",
    "Registration",
    "Remedy",
    "RenameColumns",
    "RowCheck",
    "RunLimits",
    "SchemaConflictError",
    "Sink",
    "Site",
    "SnapshotSource",
    "Source",
    "SourceChangedError",
    "SourceDataError",
    "SourceError",
    "SparkOptions",
    "SqlSource",
    "SqlTable",
    "StagedFile",
    "StagedOutput",
    "Start",
    "StepConflictError",
    "StepContext",
    "StepError",
    "StepFencedError",
    "StepLostError",
    "StepStatus",
    "StoreError",
    "TargetError",
    "TargetFile",
    "TimestampWatermark",
    "Tree",
    "UnitResult",
    "UnitState",
    "UnitSummary",
    "UnknownKindError",
    "UnknownOutcomeError",
    "Unpack",
    "UnreliableStoreError",
    "Unzstd",
    "VerifyRecoverOperator",
    "Watermark",
    "WholeTree",
    "Work",
    "WorkPlan",
    "WorkRequest",
    "WorkUnit",
    "WriteCommitStepsOperator",
    "Writer",
    "YamlIngestion",
    "Zstd",
    "dataset_asset",
    "dataset_key",
    "ingestion_params",
    "load_ingestions",
    "publish_file",
    "publish_folder",
    "publish_units",
    "record",
    "register_watermark",
]

_MODULES = {
    "YAML_SCHEMA": "operators.yaml_ingestions",
    "AddColumn": "rows.converters.columns",
    "Administration": "admin.actions",
    "AirflowConnections": "hooks.connections",
    "AlreadyCoveredError": "errors",
    "AtLeastBytes": "copy.checks",
    "AtLeastFiles": "copy.checks",
    "Attempt": "job",
    "Backlog": "model.batch",
    "Batch": "model.batch",
    "Bunzip2": "copy.conversion.converters",
    "Bzip2": "copy.conversion.converters",
    "CheckDetachedSignature": "copy.conversion.openpgp",
    "CheckFailedError": "errors",
    "CheckSignature": "copy.conversion.openpgp",
    "CheckableSource": "rows.sources.base",
    "Checksums": "copy.checks",
    "ClaimError": "errors",
    "CommitPolicy": "model.policy",
    "CommitStep": "steps.base",
    "Compare": "copy.options",
    "ConfigurationError": "errors",
    "ConnectedConverter": "copy.conversion.converters",
    "Connections": "connections",
    "Consistency": "rows.sources.base",
    "Converter": "rows.converters.base",
    "CopiedFile": "copy.checks",
    "CopiedFileSet": "copy.checks",
    "CopyableDataset": "copy.finders",
    "Coverage": "model.coverage",
    "CreateWorkUnitsOperator": "operators.tasks",
    "Dataset": "model.work",
    "DatasetCronTimetable": "plugins.timetables",
    "DatasetFinder": "copy.finders",
    "DatasetLike": "job",
    "DatasetPlan": "rows.sources.base",
    "DatasetState": "model.state",
    "DatePartitions": "copy.finders",
    "Decrypt": "copy.conversion.openpgp",
    "Delete": "copy.options",
    "DifferenceError": "errors",
    "DropColumns": "rows.converters.columns",
    "EachFolder": "copy.finders",
    "Encrypt": "copy.conversion.openpgp",
    "Entry": "copy.entries",
    "EntryKind": "copy.entries",
    "EnvironmentMismatchError": "errors",
    "ExecuteCommitStepsOperator": "operators.tasks",
    "Existing": "copy.options",
    "Extract": "model.work",
    "ExtractKind": "model.work",
    "ExtractOperator": "operators.extract",
    "Failure": "model.failure",
    "FenceResult": "steps.base",
    "FileConverter": "copy.conversion.converters",
    "FileIdentity": "storage.files.base",
    "FileSet": "copy.finders",
    "FileSetCheck": "copy.checks",
    "Files": "storage.files.base",
    "FinishOperator": "operators.tasks",
    "Glob": "copy.finders",
    "GobblinError": "errors",
    "GobblinIngestion": "operators.task_group",
    "GobblinMirror": "operators.task_group",
    "GuardedConnections": "connections",
    "Gunzip": "copy.conversion.converters",
    "Gzip": "copy.conversion.converters",
    "Held": "job",
    "HiveTable": "copy.registering",
    "Holds": "model.holds",
    "InRange": "rows.converters.checks",
    "IncompleteRunError": "errors",
    "Ingestion": "ingestion",
    "IngestionNotifier": "events.notifier",
    "Isolation": "rows.sources.kafka",
    "Job": "job",
    "Journal": "journal.journal",
    "Json": "model.watermark",
    "KafkaSource": "rows.sources.kafka",
    "Keep": "copy.options",
    "Layout": "rows.sinks.base",
    "Limits": "model.work",
    "Links": "copy.options",
    "LongWatermark": "model.watermark",
    "LostRaceError": "errors",
    "Manifest": "copy.finders",
    "Matches": "rows.converters.checks",
    "Mirror": "mirror",
    "MissingExtraError": "errors",
    "MultiLongWatermark": "model.watermark",
    "NeverPublishedError": "errors",
    "NewestVersions": "copy.finders",
    "NoSuchRangeError": "errors",
    "NotFoundError": "errors",
    "NotNull": "rows.converters.checks",
    "OnBadRow": "rows.converters.base",
    "OutOfRange": "rows.sources.kafka",
    "OverlapError": "errors",
    "ParquetSink": "rows.sinks.parquet",
    "PausedError": "errors",
    "Phase": "steps.base",
    "PlacedFileSet": "copy.registering",
    "PlacedReader": "rows.sources.base",
    "Plan": "model.plan",
    "PlanRequest": "rows.sources.base",
    "Predicate": "rows.sources.sql.tables",
    "PublishedDataset": "journal.published",
    "PublishedFile": "journal.published",
    "QuarantinedError": "errors",
    "Range": "model.coverage",
    "RangeRequest": "model.request",
    "RangeSource": "rows.sources.base",
    "ReadRequest": "rows.sources.base",
    "Reader": "rows.sources.base",
    "Ready": "copy.finders",
    "RecordError": "errors",
    "Registration": "copy.registering",
    "Remedy": "errors",
    "RenameColumns": "rows.converters.columns",
    "RowCheck": "rows.converters.base",
    "RunLimits": "model.limits",
    "SchemaConflictError": "errors",
    "Sink": "rows.sinks.base",
    "Site": "model.site",
    "SnapshotSource": "rows.sources.base",
    "Source": "rows.sources.base",
    "SourceChangedError": "errors",
    "SourceDataError": "errors",
    "SourceError": "errors",
    "SparkOptions": "operators.spark_options",
    "SqlSource": "rows.sources.sql",
    "SqlTable": "rows.sources.sql.tables",
    "StagedFile": "model.work",
    "StagedOutput": "storage.files.base",
    "Start": "rows.sources.kafka",
    "StepConflictError": "errors",
    "StepContext": "steps.base",
    "StepError": "errors",
    "StepFencedError": "errors",
    "StepLostError": "errors",
    "StepStatus": "steps.base",
    "StoreError": "errors",
    "TargetError": "errors",
    "TargetFile": "steps.base",
    "TimestampWatermark": "model.watermark",
    "Tree": "copy.trees.base",
    "UnitResult": "model.work",
    "UnitState": "model.work",
    "UnitSummary": "model.work",
    "UnknownKindError": "errors",
    "UnknownOutcomeError": "errors",
    "Unpack": "copy.conversion.archives",
    "UnreliableStoreError": "errors",
    "Unzstd": "copy.conversion.converters",
    "VerifyRecoverOperator": "operators.tasks",
    "Watermark": "model.watermark",
    "WholeTree": "copy.finders",
    "Work": "job",
    "WorkPlan": "job",
    "WorkRequest": "job",
    "WorkUnit": "model.work",
    "WriteCommitStepsOperator": "operators.tasks",
    "Writer": "rows.sinks.base",
    "YamlIngestion": "operators.yaml_ingestions",
    "Zstd": "copy.conversion.converters",
    "dataset_asset": "events.assets",
    "dataset_key": "model.naming",
    "ingestion_params": "operators.run_requests",
    "load_ingestions": "operators.yaml_ingestions",
    "publish_file": "steps.publishing",
    "publish_folder": "steps.publishing",
    "publish_units": "rows.sinks.base",
    "record": "model.wire",
    "register_watermark": "model.watermark",
}
"""The module below this package that each name comes from."""


if not TYPE_CHECKING:  # whose checkers would take any name for one that is there

    def __getattr__(name: str) -> object:
        """Import a name of the face from its module, once.

        :raises AttributeError: there is no such name; its text has those that may be meant.
        """
        if name not in _MODULES:
            from airflow_gobblin.model.naming import meant

            hint = "" if name.startswith("_") else meant(__all__, name)
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}. {hint}".rstrip())
        from importlib import import_module

        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
