"""`MemoryFiles` as a disk that loses power, and as an onlooker sees them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from airflow_gobblin.testing.memory_files import MemoryFiles, _File, _parent


class MemoryMedium:
    """`MemoryFiles` as a `faults.Disk` takes changes of them back."""

    def __init__(self, files: MemoryFiles) -> None:
        self._files = files

    def _at(self, path: str) -> str:
        return path[len(self._files.root) + 1 :] or "."

    def exists(self, path: str) -> bool:
        return self._at(path) in self._files._files or self._at(path) in self._files._folders

    def content(self, path: str) -> int:
        file = self._files._files.get(self._at(path))
        return 0 if file is None else file.inode

    def remove(self, path: str) -> None:
        self._files.remove_tree(self._at(path))
        self._files.remove(self._at(path))

    def keep(self, path: str) -> tuple[dict[str, _File], set[str]]:
        at, inside = self._at(path), f"{self._at(path)}/"
        files = self._files._files.items()
        return (
            {name[len(at) :]: file for name, file in files if name == at or name.startswith(inside)},
            {name[len(at) :] for name in self._files._folders if name == at or name.startswith(inside)},
        )

    def kept(self, path: str) -> int:
        return 0

    def put_back(self, kept: tuple[dict[str, _File], set[str]], path: str) -> None:
        at = self._at(path)
        if _parent(at) in self._files._folders:
            self._files._folders |= {f"{at}{name}" for name in kept[1]}
            for name, file in kept[0].items():
                if f"{at}{name}" not in self._files._files:
                    self._files._files[f"{at}{name}"] = file
                    file.names += 1

    def rename(self, old: str, new: str) -> None:
        if self.exists(old) and not self.exists(new) and self.exists(_parent(new)):
            self._files.move_folder(self._at(old), self._at(new))

    def cut(self, contents: Collection[int], size: Callable[[int], int]) -> None:
        for file in {id(file): file for file in self._files._files.values() if file.inode in contents}.values():
            del file.data[size(len(file.data)) :]

    def forget(self) -> None:
        """Nothing takes room."""


class Onlooker:
    """Files as an onlooker sees them, who changes nothing, not even what is durable."""

    def __init__(self, files: MemoryFiles) -> None:
        self._files = files

    def sync_folder(self, path: str) -> None:
        """Not by an onlooker."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)
