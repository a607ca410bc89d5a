"""The code shipped to Spark: this package and the author's own modules, as one zip for `--py-files`.

Executors have neither Airflow nor this package. A zip is named by its content and has the same bytes wherever it is built,
so that it is written once and an unchanged one is found again. Modules are located without being imported, as a DAG author's
package may do anything on import. They are shipped compiled, too: otherwise the driver and each Python worker would compile
everything they import from the zip, and Python never keeps that.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import logging
import marshal
import os
import shutil
import stat
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import suppress
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from types import CodeType

from airflow_gobblin.errors import ConfigurationError

__all__ = ["own_folder", "private_folder", "shared_folder", "ship", "ship_file", "ship_launcher"]

log = logging.getLogger(__name__)

_PACKAGE = "airflow_gobblin"
_NOT_FOR_SPARK = frozenset({"operators", "hooks", "links", "plugins", "cli", "testing", "_spark_jobs"})
_NATIVE = (".so", ".pyd", ".dylib")
_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNCHECKED_HASH = 0b01
"""The flag of a `.pyc` with a hash of its source that isn't checked. See PEP 552."""


def ship(code: Iterable[str], folder: Path) -> Path:
    """Write the zip that executors need into `folder`, unless it exists already.

    :param code: the author's modules and packages, by name; each goes with everything in it.
    :return: the path of the zip.
    :raises ConfigurationError: a module can't be found, or contains native code, which a zip can't carry.
    """
    entries = dict(_entries(_PACKAGE, _NOT_FOR_SPARK))
    for module in code:
        entries.update(_entries(module))
    known = _known_by(entries)
    for found in folder.glob(f"{known}-*.zip"):
        if found.name == f"{known}-{_digest(found.read_bytes())}.zip":
            return found
    return _write(_zip(entries | _compiled(entries)), folder, ".zip", f"{known}-")


def ship_file(path: Path, folder: Path) -> Path:
    """Write a copy of a file into `folder`, unless it exists already, for a driver that runs elsewhere."""
    return _write(path.read_bytes(), folder, path.suffix)


def ship_launcher(folder: Path) -> Path:
    """Write a jar without classes, for a Java application that needs only Spark's own."""
    return _write(_zip({"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\n"}), folder, ".jar")


def private_folder(name: str) -> Path:
    """Return a folder below the temporary directory that is this user's alone: its content is run, with secrets in hand.

    Anyone may make folders there. One of this name that somebody else made, or may write to, is left as it is, and a fresh
    one is made, for this process.
    """
    folder = own_folder(name)
    if folder is not None:
        return folder
    log.warning(
        "%s isn't a folder of this user's alone, so a fresh one takes its place: see who made it, and remove it",
        Path(tempfile.gettempdir()) / name,
    )
    return _fresh_folder(f"{name}-")


def own_folder(name: str) -> Path | None:
    """Return the folder of this name below the temporary directory, made if missing; `None` if it isn't this user's alone."""
    folder = Path(tempfile.gettempdir()) / name
    return folder if _is_own(folder, 0o700) else None


def shared_folder(folder: Path) -> Path:
    """Return a folder, made if missing, that others may read and only this user may write to.

    :raises ConfigurationError: somebody else made it, or may write to it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    if _is_own(folder, 0o755):
        return folder
    raise ConfigurationError(
        operation="ship",
        subject=f"code to Spark by {folder}",
        cause="it isn't a folder of this user's alone, and code that is found there is run, secrets in hand",
        hint="See who made it, and remove it; or leave out `durable`, and it isn't needed.",
    )


def _is_own(folder: Path, mode: int) -> bool:
    """Return whether a folder, made if missing, is this user's, with no more rights for others than a mode grants."""
    with suppress(FileExistsError):
        folder.mkdir(mode=mode)
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o777 & ~mode


@cache
def _fresh_folder(prefix: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _known_by(entries: Mapping[str, bytes]) -> str:
    """Return the digest that identifies the zip of these files, as this Python compiles them."""
    known = hashlib.sha256(MAGIC_NUMBER)
    for name, data in sorted(entries.items()):
        known.update(f"{name}\0{len(data)}\0".encode())
        known.update(data)
    return known.hexdigest()[:32]


def _entries(module: str, out: Set[str] = frozenset()) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a module or package, and the `__init__` of each package above it, by their names in the zip.

    :param out: what to leave out at the top level of the package.
    """
    names = module.split(".")
    search: list[str] | None = None
    for depth, name in enumerate(names, start=1):
        spec = _find(name, search, module)
        search = list(spec.submodule_search_locations or ()) or None
        path = "/".join(names[:depth])
        last = depth == len(names)
        if search is None and not last:
            raise _unshippable(module, f"{'.'.join(names[:depth])!r} is a module, not a package")
        if search is None:
            yield f"{path}.py", _source(spec, module)
        elif last:
            for location in search:
                yield from _tree(location, path, module, out)
        elif spec.origin:
            yield f"{path}/__init__.py", _source(spec, module)


def _find(name: str, search: list[str] | None, module: str) -> ModuleSpec:
    """Return the spec of a module or of one part of its name, without importing the packages above it."""
    if search is not None:
        spec = PathFinder.find_spec(name, search)
    else:  # the import system's own finders: an editable install may have added one
        spec = next(filter(None, (finder.find_spec(name, None) for finder in sys.meta_path)), None)
    if spec is None:
        raise _unshippable(module, f"there is no {name!r} {'in it' if search else 'on the path of this Python'}")
    return spec


def _source(spec: ModuleSpec, module: str) -> bytes:
    origin = Path(spec.origin or "")
    if origin.suffix in _NATIVE:
        raise _native(module, origin)
    if origin.suffix != ".py" or not origin.is_file():
        raise _unshippable(module, f"it has no source file ({spec.origin or 'no origin'})")
    return origin.read_bytes()


def _tree(folder: str, inside: str, module: str, out: Set[str]) -> Iterator[tuple[str, bytes]]:
    if not os.path.isdir(folder):
        raise _unshippable(module, f"{folder} is not a folder")
    for at, folders, names in os.walk(folder):
        here = f"{inside}{at[len(folder.rstrip('/')) :]}"
        folders[:] = sorted({*folders} - {"__pycache__"} - (out if here == inside else set()))
        for name in sorted(names):
            path = Path(at, name)
            if path.suffix in _NATIVE:
                raise _native(module, path)
            if path.is_file():
                yield f"{here}/{name}", path.read_bytes()


def _compiled(entries: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the modules as this Python compiles them; the magic number keeps another Python from using them."""
    compiled = {}
    with warnings.catch_warnings(action="ignore"):  # warnings about the author's code, which isn't run here
        for name, data in entries.items():
            if name.endswith(".py"):
                with suppress(SyntaxError, ValueError):  # it is a template, or for another Python
                    compiled[f"{name}c"] = _bytecode(compile(data, name, "exec", dont_inherit=True), data)
    return compiled


def _bytecode(code: CodeType, source: bytes) -> bytes:
    """Return the content of a `.pyc` that needs no check. Version 2 of the format has no references, which vary by chance."""
    flags = _UNCHECKED_HASH.to_bytes(4, "little")
    return MAGIC_NUMBER + flags + source_hash(source) + marshal.dumps(code, 2)


def _zip(entries: Mapping[str, bytes]) -> bytes:
    """Return a zip, stored, not deflated, and without times and modes: the same bytes from the same files, on every machine."""
    buffer = io.BytesIO()
    # Before Python 3.13, a package without `__init__` is found in a zip only by an entry of its folder.
    folders = {f"{parent}/": b"" for name in entries for parent in map(str, list(Path(name).parents)[:-1])}
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted((folders | dict(entries)).items()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data)
    return buffer.getvalue()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _write(data: bytes, folder: Path, suffix: str, prefix: str = "") -> Path:
    target = folder / f"{prefix}{_digest(data)}{suffix}"
    if target.is_file() and target.read_bytes() == data:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".tmp-", suffix=suffix)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), 0o644)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target


def _native(module: str, path: Path) -> ConfigurationError:
    return ConfigurationError(
        operation="ship",
        subject=f"module {module!r} to Spark",
        cause=f"it holds native code ({path}), which can't be loaded from a zip",
        hint="Install it into the executors' Python, and name only your own modules in `code=[...]`.",
    )


def _unshippable(module: str, cause: str) -> ConfigurationError:
    return ConfigurationError(
        operation="ship",
        subject=f"module {module!r} to Spark",
        cause=cause,
        hint="Name modules in `code=[...]` as they are imported, and put them where Airflow's workers find them.",
    )
