"""Who may import whom. Executors have no Airflow, and an Airflow worker needs no pyspark to be scheduled."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.environment import ROOT

PACKAGE = ROOT / "airflow_gobblin"
AIRFLOW_SIDE = ("announcing", "operators", "hooks", "links", "plugins", "cli")

# Folder of the package ("" are the root modules) -> what its modules never import, as dotted prefixes.
FORBIDDEN = {
    "": ("airflow", "pyspark"),
    "converters": ("airflow", "pyspark"),
    "files": ("airflow", "pyspark"),
    "stores": ("airflow", "pyspark"),
    "sources": ("airflow", "pyspark"),
    "sinks": ("airflow", "pyspark"),
    "spark": ("airflow", "airflow_gobblin.journal", "airflow_gobblin.stores"),
    **dict.fromkeys(AIRFLOW_SIDE, ("pyspark",)),
}


def modules() -> list[Path]:
    return sorted((*PACKAGE.rglob("*.py"), *(ROOT / "spark_jobs").rglob("*.py")))


def folder_of(module: Path) -> str:
    if not module.is_relative_to(PACKAGE):
        return "spark"
    parts = module.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


def imported(module: Path, *, late: bool) -> Iterator[str]:
    """The names a module imports when it is loaded, and with `late` also those its functions import when they are called.

    What only a type checker reads is left out.
    """
    waiting: list[ast.AST] = [ast.parse(module.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        in_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        typing_only = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        if (late or not in_function) and not typing_only:
            waiting.extend(ast.iter_child_nodes(node))


def is_below(name: str, prefix: str) -> bool:
    return f"{name}.".startswith(f"{prefix}.")


def test_every_folder_has_a_rule() -> None:
    assert {folder_of(module) for module in modules()} <= set(FORBIDDEN)


@pytest.mark.parametrize("module", modules(), ids=lambda module: str(module.relative_to(ROOT)))
def test_module_imports_only_what_its_side_may(module: Path) -> None:
    forbidden = FORBIDDEN[folder_of(module)]
    now, ever = set(imported(module, late=False)), set(imported(module, late=True))
    # Only Spark may come late: a source or reader that was asked for a DataFrame gives one.
    wrong = {name for name in now for prefix in forbidden if is_below(name, prefix)}
    wrong |= {name for name in ever for prefix in forbidden if is_below(name, prefix) and prefix != "pyspark"}
    assert wrong == set()


def test_the_package_loads_without_airflow_and_spark() -> None:
    loaded = "import sys, airflow_gobblin; print([name for name in ('airflow', 'pyspark') if name in sys.modules])"
    assert run_python(loaded) == "[]\n"


def test_what_runs_in_spark_loads_where_there_is_no_airflow() -> None:
    names = [
        ".".join(module.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for module in modules()
        if module.is_relative_to(PACKAGE) and "airflow" in FORBIDDEN[folder_of(module)]
    ]
    program = "import importlib, sys; sys.modules['airflow'] = None; names = sys.argv[1:]"
    assert run_python(f"{program}; [importlib.import_module(name) for name in names]; print(len(names))", *names) == (
        f"{len(names)}\n"
    )


def run_python(program: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
