"""Connections reach a driver by its environment, once, and appear nowhere."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.spark.connections import (
    FILE_VARIABLE,
    VARIABLE,
    SparkConnections,
    give_connections,
    take_connections,
)

ALL = SparkConnections({"a": "postgresql://u:canary-a@h/d", "b": "sqlite:////canary-b"})


def test_what_is_given_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in give_connections(ALL, ["a", "a"]).items():
        monkeypatch.setenv(name, value)
    taken = take_connections()
    assert taken.uri("a") == ALL.uri("a")
    assert VARIABLE not in os.environ
    with pytest.raises(
        ConfigurationError, match=r"neither AIRFLOW_GOBBLIN_CONNECTIONS nor .*_FILE is in its environment"
    ):
        take_connections()


def test_only_what_is_asked_for_is_given() -> None:
    taken = take_connections(give_connections(ALL, ["a"]), ["a", "b"])
    with pytest.raises(ConfigurationError, match=r"connection 'b' in Spark: the Spark application was given \['a'\]"):
        taken.uri("b")


def test_no_connections_is_something_given() -> None:
    assert take_connections(give_connections(ALL, [])) == SparkConnections({})


def test_no_value_is_shown() -> None:
    assert "canary" not in f"{ALL!r} {ALL} {pickle.loads(pickle.dumps(ALL))!r}"
    with pytest.raises(ConfigurationError) as caught:
        ALL.uri("c")
    assert "canary" not in str(caught.value)


def test_a_driver_that_runs_elsewhere_finds_them_in_a_file_and_takes_no_more_than_it_needs(tmp_path: Path) -> None:
    file = tmp_path / "connections.json"
    file.write_text(json.dumps(ALL.uris))
    file.chmod(0o600)
    taken = take_connections({FILE_VARIABLE: str(file)}, ["b"])
    assert taken == SparkConnections({"b": ALL.uris["b"]})
    beside_it = {FILE_VARIABLE: str(file), **give_connections(SparkConnections({"b": "sqlite:////x"}), ["b"])}
    assert take_connections(beside_it, ["b"]).uri("b") == "sqlite:////x"


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        (None, 0o600, "FileNotFoundError"),
        ("{}", 0o640, r"others than its owner may read or write it \(mode 640\). chmod 600"),
        ("canary", 0o600, "it is not a JSON object of strings"),
        ('["canary"]', 0o600, "it is not a JSON object of strings"),
        ('{"a": 1}', 0o600, "it is not a JSON object of strings"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: str | None, mode: int, why: str) -> None:
    file = tmp_path / "connections.json"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    with pytest.raises(ConfigurationError, match=rf"{file}.*{why}") as caught:
        take_connections({FILE_VARIABLE: str(file)})
    assert "canary" not in str(caught.value)
