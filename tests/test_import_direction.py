"""The allowed imports. Executors have no Airflow, and an Airflow worker needs no pyspark to be scheduled."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.services.environment import ROOT

PACKAGE = ROOT / "airflow_gobblin"

ROOMS = (
    ("errors", "get_provider_info"),
    ("redaction",),
    ("model", "connections"),
    ("storage",),
    ("steps",),
    ("tables",),
    ("job",),
    ("journal",),
    ("workspace",),
    ("commit",),
    ("run", "admin"),
    ("spark",),
    ("rows", "copy"),
    ("stages",),
    ("ingestion", "mirror", "stage"),
    ("pipeline",),
    ("hooks", "testing"),
    ("events", "links", "cli"),
    ("plugins",),
    ("operators",),
)
"""The rooms of the package, from low to high: a room imports lower ones only, now, late, or for types. Those of one line don't
import each other."""
INNER: Mapping[str, tuple[str, ...]] = {
    "copy/conversion": ("trees",),
    "copy/transfer": ("conversion", "trees"),
    "copy/trees": (),
    "plugins/page": (),
    "rows/converters": (),
    "rows/sinks": (),
    "rows/sources": ("converters",),
    "storage/files": ("stores",),
    "storage/stores": ("files",),
    "tables/arrow": (),
    "tables/delta": ("arrow",),
    "tables/postgres": ("arrow",),
}
"""The folders of a room, each with those beside it that it may import; all may import the room's own modules. Only files and
stores import each other: storage offers both, and a store on a disk or in HDFS is made of files."""
BY_NAME = {
    "get_provider_info.py": {"hooks", "operators"},  # for Airflow, which imports them
    "model/registry.py": {"steps", "tables", "rows", "copy", "stages"},  # the built-in kinds, wherever records are read
    "spark/fork_server.py": {"stages"},  # loaded before a driver is forked, which may need them
}
"""The rooms that aren't lower, and that a module names by texts, to have them imported."""
FLOOR = {room: number for number, rooms in enumerate(ROOMS) for room in rooms}
AIRFLOW_SIDE = ("hooks", "events", "links", "cli", "plugins", "operators")
_OF_RUNS = ("journal", "workspace", "commit", "run", "admin", "spark")
# Rooms -> what their modules never import, as dotted prefixes.
FORBIDDEN = {
    **dict.fromkeys(FLOOR, ("airflow", "pyspark")),
    # The work on rows, or on files, knows the port, and nothing of the runs, records and places that it is done for.
    "rows": ("airflow", "pyspark", *(f"airflow_gobblin.{room}" for room in _OF_RUNS)),
    "copy": ("airflow", "pyspark", *(f"airflow_gobblin.{room}" for room in _OF_RUNS)),
    "spark": ("airflow", "airflow_gobblin.journal.journal", "airflow_gobblin.storage.stores"),
    **dict.fromkeys(AIRFLOW_SIDE, ("pyspark",)),
}


def modules() -> list[Path]:
    return sorted((*PACKAGE.rglob("*.py"), *(ROOT / "spark_jobs").rglob("*.py")))


def room_of(module: Path) -> str:
    """The folder or module of the package's root that a module is in; the applications that are submitted are Spark's."""
    if not module.is_relative_to(PACKAGE):
        return "spark"
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(module: Path, *, late: bool, types: bool = False) -> Iterator[str]:
    """The names a module imports when it is loaded.

    :param late: those that its functions import when they are called, too.
    :param types: those that only a type checker reads.
    """
    waiting: list[ast.AST] = [ast.parse(module.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}, line {node.lineno}: write the whole name of what is imported"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (str(name.value) for name in node.args[:1] if isinstance(name, ast.Constant))
        in_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        typing_only = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        if (late or not in_function) and (types or not typing_only):
            waiting.extend(ast.iter_child_nodes(node))


def named(module: Path) -> Iterator[str]:
    """The package's modules that the texts of a module name: they may be imported by that."""
    texts = (node.value for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Constant))
    names = (text for text in texts if isinstance(text, str) and is_below(text, PACKAGE.name) and text != PACKAGE.name)
    yield from (name for name in names if any(ROOT.glob(f"{name.replace('.', '/')}*")))


def is_below(name: str, prefix: str) -> bool:
    return f"{name}.".startswith(f"{prefix}.")


def test_every_room_has_a_floor() -> None:
    assert {room_of(module) for module in modules()} - {"__init__"} == FLOOR.keys()


@pytest.mark.parametrize("module", modules(), ids=lambda module: str(module.relative_to(ROOT)))
def test_a_room_imports_lower_ones_only(module: Path) -> None:
    room = room_of(module)
    if room == "__init__":
        return  # the public face gives names of every room, each when it is asked for
    others = {name.split(".")[1] for name in imported(module, late=True, types=True) if is_below(name, PACKAGE.name)}
    above = len(ROOMS)  # where names of the public face come from
    wrong = {other for other in others - {room} if FLOOR.get(other, above) >= FLOOR[room] or other == "testing"}
    assert wrong == set(), "only tests import `testing`, which needs pytest"


@pytest.mark.parametrize("module", modules(), ids=lambda module: str(module.relative_to(ROOT)))
def test_a_room_names_lower_ones_only_too(module: Path) -> None:
    room = room_of(module)
    if room == "__init__":
        return
    others = {name.split(".")[1] for name in named(module)} - {room}
    above = {other for other in others if FLOOR[other] >= FLOOR[room]}
    assert above == BY_NAME.get(module.relative_to(PACKAGE).as_posix() if module.is_relative_to(PACKAGE) else "", set())


def test_every_inner_folder_is_listed() -> None:
    found = {"/".join(module.relative_to(PACKAGE).parts[:2]) for module in PACKAGE.glob("*/*/**/*.py")}
    assert found == INNER.keys()


@pytest.mark.parametrize("folder", INNER)
def test_an_inner_folder_imports_only_those_beside_it_that_it_may(folder: str) -> None:
    room, name = folder.split("/")
    beside = {other.split("/")[1] for other in INNER if other.startswith(f"{room}/")} - {name}
    names = {n for module in (PACKAGE / folder).rglob("*.py") for n in imported(module, late=True, types=True)}
    used = {other for other in beside for n in names if is_below(n, f"{PACKAGE.name}.{room}.{other}")}
    assert used <= {*INNER[folder]}


@pytest.mark.parametrize("module", modules(), ids=lambda module: str(module.relative_to(ROOT)))
def test_module_imports_only_what_its_side_may(module: Path) -> None:
    forbidden = FORBIDDEN.get(room_of(module), ("airflow", "pyspark"))
    now, ever = set(imported(module, late=False)), set(imported(module, late=True, types=True))
    # Only Spark may come late, or for types: a source or reader that is asked for a DataFrame gives one.
    wrong = {name for name in now for prefix in forbidden if is_below(name, prefix)}
    wrong |= {name for name in ever for prefix in forbidden if is_below(name, prefix) and prefix != "pyspark"}
    assert wrong == set()


@pytest.mark.parametrize(
    ("text", "late", "types", "names"),
    [
        ("import a.b", False, False, ["a.b"]),
        ("def f():\n    from a import b", True, False, ["a.b"]),
        ("def f():\n    from a import b", False, True, []),
        ("if TYPE_CHECKING:\n    from a import b", True, True, ["a.b"]),
        ("if typing.TYPE_CHECKING:\n    from a import b", True, False, []),
        ("def f():\n    importlib.import_module('a.b')", True, False, ["a.b"]),
        ("def f():\n    importlib.import_module(name)", True, False, []),
    ],
)
def test_imports_are_found_wherever_they_are(
    tmp_path: Path, text: str, late: bool, types: bool, names: list[str]
) -> None:
    module = tmp_path / "module.py"
    module.write_text(text)
    assert list(imported(module, late=late, types=types)) == names


def test_a_relative_import_is_refused(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("from .. import journal")
    with pytest.raises(AssertionError, match="write the whole name"):
        list(imported(module, late=True))


def test_the_package_loads_without_airflow_and_spark() -> None:
    loaded = "import sys, airflow_gobblin; print([name for name in ('airflow', 'pyspark') if name in sys.modules])"
    assert run_python(loaded) == "[]\n"


@pytest.mark.slow
def test_what_runs_in_spark_loads_where_there_is_no_airflow() -> None:
    names = [
        ".".join(module.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for module in modules()
        if module.is_relative_to(PACKAGE) and "airflow" in FORBIDDEN.get(room_of(module), ())
    ]
    program = "import importlib, sys; sys.modules['airflow'] = None; names = sys.argv[1:]"
    assert run_python(f"{program}; [importlib.import_module(name) for name in names]; print(len(names))", *names) == (
        f"{len(names)}\n"
    )


def run_python(program: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
