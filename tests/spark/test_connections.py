"""Connections reach a driver by its environment, once, and show themselves nowhere."""

from __future__ import annotations

import os
import pickle

import pytest

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.spark.connections import VARIABLE, SparkConnections, give_connections, take_connections

ALL = SparkConnections({"a": "postgresql://u:canary-a@h/d", "b": "sqlite:////canary-b"})


def test_what_is_given_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in give_connections(ALL, ["a", "a"]).items():
        monkeypatch.setenv(name, value)
    taken = take_connections()
    assert taken.uri("a") == ALL.uri("a")
    assert VARIABLE not in os.environ
    with pytest.raises(ConfigurationError, match=r"AIRFLOW_GOBBLIN_CONNECTIONS is not in its environment"):
        take_connections()


def test_only_what_is_asked_for_is_given() -> None:
    taken = take_connections(give_connections(ALL, ["a"]))
    with pytest.raises(ConfigurationError, match=r"connection 'b' in Spark: the Spark application was given \['a'\]"):
        taken.uri("b")


def test_no_connections_is_something_given() -> None:
    assert take_connections(give_connections(ALL, [])) == SparkConnections({})


def test_no_value_is_shown() -> None:
    assert "canary" not in f"{ALL!r} {ALL} {pickle.loads(pickle.dumps(ALL))!r}"
    with pytest.raises(ConfigurationError) as caught:
        ALL.uri("c")
    assert "canary" not in str(caught.value)
