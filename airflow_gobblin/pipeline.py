"""The jobs of a pipeline: the graph of its ingestions and stages, checked and bound to their journals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import chain, combinations, permutations

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.ingestion import Ingestion
from airflow_gobblin.model.channels import ROWS
from airflow_gobblin.model.naming import meant
from airflow_gobblin.rows.sinks.base import TableSink
from airflow_gobblin.stage import Stage, StageJob
from airflow_gobblin.stages.frames import FrameWork, as_dataset
from airflow_gobblin.stages.outputs import Input, Output
from airflow_gobblin.storage.locations import path_below

__all__ = ["bound_jobs", "check_one_source", "check_published"]


def bound_jobs(
    pipeline: str, jobs: Sequence[Ingestion | Stage], journal: str, code: tuple[str, ...]
) -> tuple[Ingestion | StageJob, ...]:
    """Return the jobs of a pipeline, each after those that it reads: ingestions that seal versions, and stages.

    :param pipeline: its name, for errors.
    :param journal: the journal of its stages.
    :param code: the modules with their functions.
    :raises ConfigurationError: two jobs share a name, or have the same target or nested ones, one reads what no job publishes,
        they read each other, or a stage has a dataset through two inputs, at least one of them optional.
    """
    _check_apart(pipeline, jobs)
    by_name = {job.name: job for job in jobs}
    for stage in jobs:
        if isinstance(stage, Stage):
            _check_reads_files(pipeline, stage, by_name)
    bound: dict[str, Ingestion | StageJob] = {}
    reach: dict[str, frozenset[str]] = {}
    sources: dict[str, frozenset[str]] = {}
    for name in _ordered(pipeline, by_name):
        job = by_name[name]
        if isinstance(job, Ingestion):
            bound[name] = replace(job, seals=True)
            continue
        inputs = {given: tuple(_input(one, bound, reach) for one in some) for given, some in job.inputs.items()}
        required = [one.upstream.reach for one in chain.from_iterable(inputs.values()) if one.required]
        if not required:
            raise _refused(
                pipeline, f"stage {name!r} waits for nothing that it reads", "Let one of its inputs be required."
            )
        reach[name] = frozenset[str]().union(*required)
        sources[name] = _sources(pipeline, name, [*chain.from_iterable(inputs.values())], sources)
        work = FrameWork(name, job.function, inputs, job.writes, code, job.state, journal, job.channels)
        bound[name] = StageJob(name, journal, work, job.attempts, job.retention)
    return tuple(bound.values())


def check_one_source(pipeline: str, jobs: Sequence[Ingestion | StageJob]) -> None:
    """Check that each stage waits for one ingestion only, directly or through other stages.

    Ingestions without a schedule share no version.

    :raises ConfigurationError: a stage waits for several.
    """
    awaited: dict[str, frozenset[str]] = {}
    for job in jobs:
        if isinstance(job, Ingestion):
            awaited[job.name] = frozenset((job.name,))
            continue
        required = [one.ingestion for one in job.work.upstreams if one.required]
        awaited[job.name] = frozenset[str]().union(*(awaited[name] for name in required))
        if len(awaited[job.name]) > 1:
            several = " and ".join(map(repr, sorted(awaited[job.name])))
            cause = f"it has no schedule, and stage {job.name!r} waits for {several}, which seal no version in common"
            raise _refused(pipeline, cause, "Give it a schedule.")


def _input(output: Output, bound: Mapping[str, Ingestion | StageJob], reach: Mapping[str, frozenset[str]]) -> Input:
    is_stage = isinstance(bound[output.job], StageJob)
    return Input(
        bound[output.job].journal,
        output.job,
        output.job if is_stage else output.urn,
        reach.get(output.job, frozenset()),
        output.required,
        output.at_most,
        output.whole,
        output.urn if is_stage and output.urn != output.job else ROWS,
    )


def _sources(
    pipeline: str, stage: str, inputs: Sequence[Input], sources: Mapping[str, frozenset[str]]
) -> frozenset[str]:
    """Return the sources' datasets that a stage is made from, including those that come by optional inputs only.

    :param sources: those of the stages that it reads.
    :raises ConfigurationError: it has one through two inputs, at least one of them optional. Their versions can't be compared.
    """
    found = [(one, sources.get(one.ingestion, one.upstream.reach)) for one in inputs]
    for (one, through), (other, also) in combinations(found, 2):
        if one.upstream == other.upstream:
            continue  # channels of a stage: one look at it shows what both have
        compared = one.upstream.reach & other.upstream.reach if one.required and other.required else frozenset[str]()
        for dataset in sorted((through & also) - compared):
            cause = (
                f"stage {stage!r} has {dataset!r} both by {one.label!r} and by {other.label!r}, and not always by both"
            )
            raise _refused(
                pipeline, cause, "Let every input that brings it be required, or take it out of one of them."
            )
    return frozenset[str]().union(*(some for _, some in found))


def _check_apart(pipeline: str, jobs: Sequence[Ingestion | Stage]) -> None:
    """Check that each job has a name of its own, and a target that is neither another's nor inside it."""
    for job in jobs:
        if not isinstance(job, Ingestion | Stage):
            raise _refused(pipeline, f"{job!r} is neither an ingestion nor a stage", "Give it its jobs: (raw, joined).")
    for name in _twice(job.name for job in jobs):
        raise _refused(pipeline, f"two jobs are named {name!r}", "Give each a name of its own.")
    tables = (
        job.writes.table_of(as_dataset(job.name)).name
        for job in jobs
        if isinstance(job, Stage) and isinstance(job.writes, TableSink)
    )
    for table in _twice(tables):
        raise _refused(pipeline, f"two stages write to {table}", "Give each a table of its own.")
    for one, other in permutations(jobs, 2):
        root, target = _target(one), _target(other)
        below = path_below(root, target)
        if below is not None:
            cause = f"two jobs write to {root!r}, {one.name!r} and {other.name!r}"
            inside = f"{other.name!r} writes to {target!r}, which is inside {root!r}, where {one.name!r} writes"
            hint = "Give each job a target root of its own, and none inside another's."
            raise _refused(pipeline, cause if below == "." else inside, hint)


def _target(job: Ingestion | Stage) -> str:
    return (job.sink if isinstance(job, Ingestion) else job.writes).target


def _ordered(pipeline: str, jobs: Mapping[str, Ingestion | Stage]) -> Iterator[str]:
    """Yield the names of jobs, each after those that it reads.

    :raises ConfigurationError: one reads what no job publishes, or they read each other.
    """
    upstreams: dict[str, list[str]] = {}
    for name, job in jobs.items():
        outputs = [] if isinstance(job, Ingestion) else [*chain.from_iterable(job.inputs.values())]
        for output in outputs:
            check_published(pipeline, name, output, jobs)
        upstreams[name] = [output.job for output in outputs]
    try:
        yield from [*TopologicalSorter(upstreams).static_order()]
    except CycleError as error:
        circle = " → ".join(map(repr, error.args[1]))
        raise _refused(pipeline, f"its stages read each other: {circle}", "Take one of these out of `reads`.") from None


def check_published(pipeline: str, stage: str, output: Output, jobs: Mapping[str, Ingestion | Stage]) -> None:
    """Check that a job of a pipeline publishes what a stage reads, as far as that is known in a DAG file.

    :param jobs: the pipeline's, by name.
    :raises ConfigurationError: none does.
    """
    upstream = jobs.get(output.job)
    if upstream is None:
        hint = meant([*jobs], output.job, otherwise="Add it to the pipeline's jobs.")
        raise _refused(pipeline, f"stage {stage!r} reads {output.id!r}, and there is no job {output.job!r} in it", hint)
    if isinstance(upstream, Stage) and output.urn not in (upstream.name, *upstream.channels):
        cause = f"stage {stage!r} reads {output.id!r}, and stage {output.job!r} has no channel of that name"
        hint = meant([*upstream.channels], output.urn, otherwise="Give the stage itself in `reads`.")
        raise _refused(pipeline, cause, hint)


def _check_reads_files(pipeline: str, stage: Stage, jobs: Mapping[str, Ingestion | Stage]) -> None:
    """Check that a stage reads files, not tables, whose files the journal doesn't know.

    :raises ConfigurationError: rows that it reads are in a table.
    """
    for output in chain.from_iterable(stage.inputs.values()):
        upstream = jobs.get(output.job)
        sink = upstream.sink if isinstance(upstream, Ingestion) else None if upstream is None else upstream.writes
        if isinstance(sink, TableSink) and (isinstance(upstream, Ingestion) or output.urn == output.job):
            cause = f"stage {stage.name!r} reads {output.id!r}, whose rows are in a table"
            hint = "Publish these as files, and into the table by a stage beside this one; other channels of a stage are files."
            raise _refused(pipeline, cause, hint)


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _refused(pipeline: str, cause: str, hint: str) -> ConfigurationError:
    return ConfigurationError(operation="use", subject=f"pipeline {pipeline!r}", cause=cause, hint=hint)
