"""Packing: work is put into a few bins of about equal weight, by worst fit, the heaviest first. Deterministic.

Source: Gobblin's ``WorstFitDecreasingBinPacking``; model: pyiceberg's ``utils/bin_packing.py``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import TypeVar

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.naming import dataset_label
from airflow_gobblin.model.work import DatasetRef, Pack

T = TypeVar("T")


def worst_fit_decreasing(
    items: Iterable[T], bins: int, weight: Callable[[T], int], name: Callable[[T], str]
) -> tuple[tuple[T, ...], ...]:
    """Distribute items over at most `bins` bins: the heaviest first, each into the lightest bin.

    :param name: breaks ties, so that the result doesn't depend on the order of the items.
    :raises ConfigurationError: fewer than one bin.
    """
    if bins < 1:
        raise ConfigurationError(operation="pack", subject=f"into {bins} packs", cause="at least one is needed")
    ordered = sorted(items, key=lambda item: (-weight(item), name(item)))
    filled: list[list[T]] = [[] for _ in range(min(bins, len(ordered)))]
    loads = [(0, 0, index) for index in range(len(filled))]  # load, items, index: weightless items spread too
    for item in ordered:
        load, count, index = heapq.heappop(loads)
        filled[index].append(item)
        heapq.heappush(loads, (load + weight(item), count + 1, index))
    return tuple(tuple(some) for some in filled)


def worthwhile_bins(weight: int, worth: int, least: int, most: int) -> int:
    """Return how many bins to distribute a weight over: a multiple of the least number, so that these are equally loaded.

    :param worth: the weight that is worth a bin; 0 if any is.
    :param least: the number of bins that exist anyway.
    """
    return most if not worth else min(most, max(1, weight // worth // least) * least)


def pack_datasets(datasets: Iterable[DatasetRef], max_packs: int) -> tuple[Pack, ...]:
    """Put whole datasets into packs. A pack of one dataset is labeled as the dataset, others by number."""
    return _packs(worst_fit_decreasing(datasets, max_packs, weight=lambda d: d.weight, name=lambda d: d.urn))


def pack_up_to(
    datasets: Iterable[DatasetRef], max_packs: int, max_weight: int
) -> tuple[tuple[Pack, ...], tuple[DatasetRef, ...]]:
    """Return packs of a limited weight, and the datasets that don't fit. A heavier dataset gets a pack of its own.

    :param datasets: in order of priority: the first always fits. Each goes into the lightest pack.
    """
    packs: list[list[DatasetRef]] = []
    waiting: list[DatasetRef] = []
    for dataset in datasets:
        lightest = min(packs, key=_weight, default=None)
        if len(packs) < max_packs:
            packs.append([dataset])
        elif lightest is not None and _weight(lightest) + dataset.weight <= max_weight:
            lightest.append(dataset)
        else:
            waiting.append(dataset)
    return _packs(tuple(pack) for pack in packs), tuple(waiting)


def _weight(datasets: Iterable[DatasetRef]) -> int:
    return sum(dataset.weight for dataset in datasets)


def _packs(bins: Iterable[tuple[DatasetRef, ...]]) -> tuple[Pack, ...]:
    return tuple(
        Pack(index, dataset_label(some[0].urn) if len(some) == 1 else f"pack {index} ({len(some)} datasets)", some)
        for index, some in enumerate(bins)
    )
