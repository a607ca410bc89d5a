"""The author's modules are imported when something isn't registered without them, and not before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest

from airflow_gobblin.errors import ConfigurationError, UnknownKindError
from airflow_gobblin.model import watermark, wire
from airflow_gobblin.model.registry import await_kinds
from airflow_gobblin.stages.functions import Frame
from tests.services.environment import ROOT

MODULES = {
    "awaited_record": """
from dataclasses import dataclass
from airflow_gobblin.model.wire import record

@record("test.awaited")
@dataclass(frozen=True)
class Awaited:
    name: str
""",
    "awaited_watermark": """
from dataclasses import dataclass
from typing import ClassVar
from airflow_gobblin.model.watermark import register_watermark

@register_watermark
@dataclass(frozen=True, order=True)
class Letter:
    kind: ClassVar[str] = "test.letter"
    value: str

    def to_json(self):
        return self.value

    @classmethod
    def from_json(cls, value):
        return cls(value)

    def progress(self, low, high):
        return 0.0
""",
    "awaited_function": """
from airflow_gobblin import frame

@frame("test.awaited")
def made(rows):
    return rows
""",
    "awaited_in_vain": "",
    "awaited_broken": "import nothing_of_this_name",
}


class Named(Protocol):
    name: str


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("airflow_gobblin.model.registry._awaited", {})
    monkeypatch.setattr(wire, "_by_kind", dict(wire._by_kind))
    monkeypatch.setattr(wire, "_by_type", dict(wire._by_type))
    monkeypatch.setattr(watermark, "_kinds", dict(watermark._kinds))
    monkeypatch.setattr("airflow_gobblin.stages.functions._functions", {})


FACE = """
import airflow_gobblin
from airflow_gobblin.model import watermark, wire
from airflow_gobblin.model.registry import import_kinds

def kinds():
    return {**wire._by_kind, **watermark._kinds}

import_kinds()
known = kinds()
face = [getattr(airflow_gobblin, name) for name in airflow_gobblin.__all__]
print(*sorted(kind for kind, found in kinds().items() if found in face and kind not in known))
"""


@pytest.mark.slow
def test_a_driver_and_a_spark_task_know_every_kind_that_a_job_may_have() -> None:
    """They import the built-in kinds, and not what the DAG's author does."""
    done = subprocess.run([sys.executable, "-c", FACE], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == []


def awaited() -> list[str]:
    return [name for name in MODULES if name in sys.modules]


def test_a_module_is_imported_when_a_record_a_watermark_or_a_function_is_not_known_without_it() -> None:
    await_kinds(["awaited_record", "awaited_watermark", "awaited_function", "awaited_in_vain"])
    assert watermark.decode({"kind": "long", "value": 1}) == watermark.LongWatermark(1)
    assert awaited() == []
    found = wire.from_json(Named, {"kind": "test.awaited", "version": 1, "name": "x"}, "a record")
    assert (type(found).__module__, found.name) == ("awaited_record", "x")
    assert awaited() == ["awaited_record"]
    letter: Any = watermark.decode({"kind": "test.letter", "value": "c"})
    assert letter.value == "c"
    assert awaited() == ["awaited_record", "awaited_watermark"]
    Frame("test.awaited").check_code(["rows"])
    assert awaited() == ["awaited_record", "awaited_watermark", "awaited_function"]


def test_what_no_module_registers_is_not_known() -> None:
    await_kinds(["awaited_in_vain"])
    with pytest.raises(UnknownKindError, match=r"watermark of kind 'test.digit': registered are 'long'"):
        watermark.decode({"kind": "test.digit", "value": "c"})
    assert awaited() == ["awaited_in_vain"]
    with pytest.raises(ConfigurationError, match="no imported module registers it"):
        Frame("test.nobody").check_code(["rows"])


def test_a_module_that_cannot_be_imported_fails_by_name_each_time() -> None:
    await_kinds(["awaited_broken"])
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"module 'awaited_broken' of `code=.*nothing_of_this_name"):
            watermark.decode({"kind": "test.digit", "value": "c"})
