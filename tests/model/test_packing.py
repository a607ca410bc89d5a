from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.packing import pack_datasets, pack_up_to, worst_fit_decreasing, worthwhile_bins
from airflow_gobblin.model.work import DatasetRef

datasets = st.lists(
    st.builds(
        DatasetRef,
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=3),
        st.just("token"),
        st.integers(0, 100),
    ),
    max_size=12,
    unique_by=lambda dataset: dataset.urn,
)
bins = st.integers(1, 6)


def _of(weights: list[int]) -> list[DatasetRef]:
    return [DatasetRef(f"d{n:02}", "token", weight) for n, weight in enumerate(weights)]


def _loads(weights: list[int], count: int) -> list[list[int]]:
    return [[d.weight for d in pack.datasets] for pack in pack_datasets(_of(weights), count)]


def test_the_heaviest_first_each_into_the_lightest_pack() -> None:
    assert _loads([3, 9, 4, 8, 5, 7], 3) == [[9, 3], [8, 4], [7, 5]]
    assert _loads([10, 1, 1, 1], 2) == [[10], [1, 1, 1]]


def test_what_weighs_nothing_is_spread_too() -> None:
    assert _loads([0] * 6, 3) == [[0, 0], [0, 0], [0, 0]]


@pytest.mark.slow
@given(datasets, bins, st.randoms(use_true_random=False))
def test_the_order_of_the_datasets_does_not_matter(some: list[DatasetRef], count: int, chance: object) -> None:
    packs = pack_datasets(some, count)
    chance.shuffle(some)  # type: ignore[attr-defined]
    assert pack_datasets(some, count) == packs


@given(datasets, bins)
def test_every_dataset_is_whole_in_one_of_few_packs(some: list[DatasetRef], count: int) -> None:
    packs = pack_datasets(some, count)
    assert sorted((d for p in packs for d in p.datasets), key=lambda d: d.urn) == sorted(some, key=lambda d: d.urn)
    assert len(packs) == min(count, len(some)), "no pack is empty"
    assert [p.index for p in packs] == list(range(len(packs)))


@given(datasets, bins)
def test_loads_are_as_even_as_their_parts_allow(some: list[DatasetRef], count: int) -> None:
    packs = pack_datasets(some, count)
    loads = [pack.weight for pack in packs]
    assert sum(loads) == sum(d.weight for d in some)
    for pack in packs:
        lightest_part = min(d.weight for d in pack.datasets)
        assert pack.weight - lightest_part <= min(loads), "its last dataset went to the lightest pack"


def test_a_pack_is_labelled_by_its_dataset_or_its_number() -> None:
    packs = pack_datasets(_of([5, 1, 1]), 2)
    assert [pack.label for pack in packs] == ["d00", "pack 1 (2 datasets)"]


def test_at_least_one_pack_is_needed() -> None:
    assert worst_fit_decreasing([], 3, weight=int, name=str) == ()
    with pytest.raises(ConfigurationError, match="into 0 packs"):
        worst_fit_decreasing([1], 0, weight=int, name=str)


def test_there_are_as_many_bins_as_their_weight_is_worth() -> None:
    assert [worthwhile_bins(weight, 10, 2, 8) for weight in (0, 29, 39, 40, 79, 80, 1000)] == [2, 2, 2, 4, 6, 8, 8]
    assert worthwhile_bins(1, 0, 2, 8) == 8, "whatever their weight"


def test_up_to_a_weight_the_first_have_room_and_a_heavier_one_has_a_pack_alone() -> None:
    packs, waiting = pack_up_to(_of([30, 4, 5, 8, 1, 2]), 3, 10)
    assert [[d.weight for d in pack.datasets] for pack in packs] == [[30], [4, 1, 2], [5]]
    assert [d.weight for d in waiting] == [8]


@pytest.mark.slow
@given(datasets, bins, st.integers(1, 200))
def test_up_to_a_weight_nothing_is_lost_and_the_first_always_has_room(
    some: list[DatasetRef], count: int, most: int
) -> None:
    packs, waiting = pack_up_to(some, count, most)
    packed = [d for pack in packs for d in pack.datasets]
    assert sorted(d.urn for d in (*packed, *waiting)) == sorted(d.urn for d in some)
    assert len(packs) <= count
    assert not some or some[0] in packed
    assert all(
        pack.weight <= most or len(pack.datasets) == 1 or not sum(d.weight for d in pack.datasets[1:]) for pack in packs
    )
