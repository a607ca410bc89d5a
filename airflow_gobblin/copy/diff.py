"""The difference of two trees, found by walking both side by side: only the folders that the walks are in are in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from airflow_gobblin.copy.entries import Entry, EntryKind, key_of, shown
from airflow_gobblin.errors import DifferenceError


class Change(StrEnum):
    """The kind of difference between the two sides at a path."""

    NEW = "new"
    """Only the source has it."""
    CHANGED = "changed"
    """Both have it, and they differ."""
    SAME = "same"
    """Both have it, and they don't differ; also a folder that both have."""
    GONE = "gone"
    """Only the target has it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One path of two trees.

    :param source: what the source has there.
    :param target: what the target has there.
    """

    change: Change
    source: Entry | None
    target: Entry | None

    @property
    def path(self) -> str:
        """The path."""
        return self.entry.path

    @property
    def entry(self) -> Entry:
        """The entry there: the source's, if it has it."""
        found = self.source or self.target
        assert found is not None
        return found


Pair = tuple[Entry | None, Entry | None]
"""The entries of two trees at one path."""


def differences(
    source: Iterable[Entry],
    target: Iterable[Entry],
    same: Callable[[Entry, Entry], bool],
    apply: Callable[[Callable[[Pair], Difference], Iterable[Pair]], Iterator[Difference]] = map,
) -> Iterator[Difference]:
    """Yield every path of two trees, in the order of `key_of`, each folder before what is in it.

    :param source: the entries of the source, in that order.
    :param target: the entries of the target, in that order.
    :param same: whether a source's entry and a target's, neither a folder, don't differ.
    :param apply: applies a function to each item, with results in order; to several at once where `same` takes long.
    :raises DifferenceError: a listing isn't in order.
    """

    def judged(pair: Pair) -> Difference:
        mine, theirs = pair
        if mine is None or theirs is None:
            return Difference(Change.GONE if mine is None else Change.NEW, mine, theirs)
        is_same = mine.kind is EntryKind.FOLDER or same(mine, theirs)
        return Difference(Change.SAME if is_same else Change.CHANGED, mine, theirs)

    return apply(judged, _side_by_side(source, target))


def _side_by_side(source: Iterable[Entry], target: Iterable[Entry]) -> Iterator[Pair]:
    ones, others = _with_keys(source), _with_keys(target)
    one, other = next(ones, None), next(others, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            yield one[1], None
            one = next(ones, None)
        elif one is None or other[0] < one[0]:
            yield None, other[1]
            other = next(others, None)
        else:
            yield one[1], other[1]
            one, other = next(ones, None), next(others, None)


def _with_keys(entries: Iterable[Entry]) -> Iterator[tuple[bytes, Entry]]:
    before = b""
    for entry in entries:
        key = key_of(entry)
        if key <= before:
            raise DifferenceError(
                operation="compare",
                subject=f"{shown(entry.path)!r}",
                cause=f"its tree lists it after {before.decode(errors='backslashreplace')!r}, which is not in order",
                hint="Trees are compared by the order of UTF-8, as S3 lists its keys; directory buckets have none.",
            )
        before = key
        yield key, entry


def without_clashes(found: Iterable[Difference]) -> Iterator[Difference]:
    """Yield differences, as long as none needs a folder where the other side, or the source itself, has something else.

    :raises DifferenceError: one does.
    """
    names: list[tuple[str, Difference]] = []  # of files, each of which the ones after it begin with
    for one in found:
        entry = one.source or one.target
        assert entry is not None
        is_folder = entry.kind is EntryKind.FOLDER
        path = f"{entry.path}/" if is_folder else entry.path
        while names and not path.startswith(names[-1][0]):
            names.pop()
        for name, other in names:
            if path[len(name) : len(name) + 1] == "/" and not (one.source is None and other.source is None):
                raise _clash(other, one)
        if not is_folder:
            names.append((path, one))
        yield one


def _clash(name: Difference, folder: Difference) -> DifferenceError:
    sides = " and ".join(
        f"{'a folder' if one is folder else f'a {one.entry.kind.value}'} in the {side}"
        for one, side in ((name, _side(name)), (folder, _side(folder)))
    )
    return DifferenceError(
        operation="mirror",
        subject=f"{shown(name.path)!r}",
        cause=f"it is {sides}",
        hint="Neither is put in place of the other: rename or remove one of them, or exclude it by the filter.",
    )


def _side(one: Difference) -> str:
    return "target" if one.source is None else "source"
