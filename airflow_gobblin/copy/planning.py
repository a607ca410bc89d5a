"""The plans of file sets: which file sets exist, and the difference of source and target of each, cut into bundles."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING

from airflow_gobblin.copy.bundles import bundled, units_of
from airflow_gobblin.copy.conversion.openpgp import gives_other_bytes
from airflow_gobblin.copy.entries import shown
from airflow_gobblin.copy.finders import FileSet, Place, file_sets_of
from airflow_gobblin.copy.options import Compare
from airflow_gobblin.copy.sides import filter_of
from airflow_gobblin.copy.survey import Survey
from airflow_gobblin.copy.trees import open_tree
from airflow_gobblin.copy.work import CopyBinding, CopyWork
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.job import WorkPlan, WorkRequest
from airflow_gobblin.model.state import DatasetState
from airflow_gobblin.storage.locations import local_path, path_below, remote_location

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections, GuardedConnections
    from airflow_gobblin.storage.files.base import Files


def find_file_sets(work: CopyWork, connections: Connections) -> tuple[FileSet, ...]:
    """Return the file sets of a mirror. See `Work.datasets`.

    :raises SourceError: the source can't be listed, or nothing is found in it.
    :raises ConfigurationError: the filter is malformed, two file sets are in one another's way, or one tree lies in the other.
    """
    _check_trees(work)
    tree = open_tree(work.source, connections, work.links)
    place = Place(work.place) if work.place else None
    return file_sets_of(work.finder, tree, work.mirror, filter_of(work), place, work.first)


def _check_trees(work: CopyWork) -> None:
    """Make sure that no tree lies in the other through symbolic links, which their locations don't show.

    :raises ConfigurationError: one does.
    """
    if remote_location(work.source) is not None or remote_location(work.target) is not None:
        return
    paths = (local_path(at, operation="use", subject=f"tree {at!r}") for at in (work.source, work.target))
    source, target = map(os.path.realpath, paths)
    if path_below(source, target) is not None or path_below(target, source) is not None:
        raise ConfigurationError(
            operation="mirror",
            subject=f"{work.source!r} to {work.target!r}",
            cause=f"one lies in the other: they are {shown(source)!r} and {shown(target)!r}, without links",
            hint="Give trees that are apart: a copy would be copied again and again. Nothing was changed.",
        )


def plan_copy(
    work: CopyWork,
    dataset: FileSet,
    states: Mapping[str, DatasetState],
    request: WorkRequest,
    files: Files,
    connections: GuardedConnections,
) -> WorkPlan | None:
    """Plan a file set; `None` if its target is like its source. See `Work.plan`.

    Anything that forbids the plan raises an error at the end of its units at the latest, and none of it is carried out.
    """
    if work.compare is Compare.CHECKSUM and gives_other_bytes(work.convert):
        raise ConfigurationError(
            operation="mirror",
            subject=f"file set {dataset.urn!r}",
            cause="it is compared by contents, and an encryption has other bytes each time",
            hint="Let its finder compare it by size and time. Nothing was changed.",
        )
    survey = Survey.of(work, dataset, files, connections)
    survey.check_keep()
    units = units_of(bundled(survey.acts(), work.split_above), dataset.urn)
    first = next(units, None)
    if first is None:
        return None
    above = survey.missing_above() if work.keep.gives else ()
    binding = CopyBinding(dataset.source_folder, dataset.keep, dataset.compare, dataset.name, above, work.recipe)
    return WorkPlan(chain((first,), units), dataset.folder, binding, metadata=dataset.metadata)
