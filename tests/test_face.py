"""The public face: what authors import by `from airflow_gobblin import …`, each name loaded when it is asked for."""

from __future__ import annotations

import ast
from importlib import import_module
from inspect import isclass, isfunction

import pytest

import airflow_gobblin
from airflow_gobblin import errors
from tests.test_import_direction import AIRFLOW_SIDE, PACKAGE, run_python

TABLE = airflow_gobblin._MODULES
CORE = [name for name, module in TABLE.items() if module.partition(".")[0] not in AIRFLOW_SIDE]


@pytest.mark.parametrize("name", TABLE)
def test_a_name_is_the_object_of_its_module(name: str) -> None:
    module = f"airflow_gobblin.{TABLE[name]}"
    given = getattr(airflow_gobblin, name)
    assert given is getattr(import_module(module), name)
    if isclass(given) or isfunction(given):
        assert (given.__module__, given.__qualname__) == (module, name), "the table names where it is made"


def test_what_is_given_is_listed_and_sorted() -> None:
    assert airflow_gobblin.__all__ == [*TABLE]
    assert airflow_gobblin.__all__ == sorted(TABLE, key=lambda name: (not name.isupper(), name))
    assert set(TABLE) <= set(dir(airflow_gobblin))


def test_type_checkers_and_editors_see_the_same_names_from_the_same_modules() -> None:
    typed, _ = (node for node in ast.parse((PACKAGE / "__init__.py").read_text()).body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in typed.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == {name: f"airflow_gobblin.{module}" for name, module in TABLE.items()}


def test_every_error_is_given() -> None:
    tree = {name for name, value in vars(errors).items() if isclass(value) and value.__module__ == errors.__name__}
    assert {name for name, module in TABLE.items() if module == "errors"} == tree


def test_to_import_the_package_loads_nothing_of_it() -> None:
    loaded = "import sys, airflow_gobblin; print([name for name in sys.modules if name.startswith('airflow_gobblin.')])"
    assert run_python(loaded) == "[]\n"


@pytest.mark.slow
def test_what_authors_name_loads_neither_arrow_nor_spark_nor_airflow() -> None:
    """Each of the core's names, because DAG files are parsed often, and executors have no Airflow. Actions of people on datasets
    are in no DAG file, and read schemas."""
    program = (
        "import sys; sys.modules['airflow'] = None; import airflow_gobblin\n"
        "for name in sys.argv[1:]: getattr(airflow_gobblin, name)\n"
        "print([name for name in ('pandas', 'pyarrow', 'pyspark') if name in sys.modules])"
    )
    assert run_python(program, *(name for name in CORE if name != "Administration")) == "[]\n"


def test_a_name_that_is_not_there_is_refused_with_those_that_are_near() -> None:
    """By type checkers, too: each `ignore` here is refused where it isn't needed."""
    with pytest.raises(AttributeError, match=r"no attribute 'ParketSink'\. Did you mean 'ParquetSink'"):
        _ = airflow_gobblin.ParketSink  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="cannot import name 'ParketSink'"):
        from airflow_gobblin import ParketSink  # type: ignore[attr-defined]  # noqa: F401
    assert not hasattr(airflow_gobblin, "__wrapped__")


def test_modules_are_imported_from_the_package_as_ever() -> None:
    program = "from airflow_gobblin import errors, Ingestion, ingestion; print(ingestion.Ingestion is Ingestion)"
    assert run_python(program) == "True\n"
