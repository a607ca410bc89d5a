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
AIRFLOW_SIDE = ("operators", "hooks", "links", "plugins", "cli")

# Folder of the package ("" are the root modules) -> what its modules never import, as dotted prefixes.
FORBIDDEN = {
    "": ("airflow", "pyspark"),
    "converters": ("airflow", "pyspark"),
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


def imported(module: Path) -> Iterator[str]:
    """The names a module imports when it is loaded; what only a type checker or a function's body needs is left out."""
    waiting: list[ast.AST] = [ast.parse(module.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        late = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        typing_only = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        if not late and not typing_only:
            waiting.extend(ast.iter_child_nodes(node))


def test_every_folder_has_a_rule() -> None:
    assert {folder_of(module) for module in modules()} <= set(FORBIDDEN)


@pytest.mark.parametrize("module", modules(), ids=lambda module: str(module.relative_to(ROOT)))
def test_module_imports_only_what_its_side_may(module: Path) -> None:
    wrong = [
        name
        for name in imported(module)
        for prefix in FORBIDDEN[folder_of(module)]
        if f"{name}.".startswith(f"{prefix}.")
    ]
    assert wrong == []


def test_the_package_loads_without_airflow_and_spark() -> None:
    loaded = "import sys, airflow_gobblin; print([name for name in ('airflow', 'pyspark') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
