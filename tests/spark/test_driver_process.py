"""The processes of drivers for Spark Connect: forked by one that has loaded their imports, or started anew. Without Spark."""

from __future__ import annotations

import json
import os
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_gobblin.spark import driver_process, fork_server
from airflow_gobblin.spark.driver_process import start_driver
from tests.services.environment import TEMPORARY

pytestmark = pytest.mark.slow

SECRET = "canary-of-a-driver"
SCRIPT = """
import json, os, random, sys
import numpy
print(json.dumps({
    "arguments": sys.argv[1:], "folder": os.getcwd(), "secret": os.environ.get("ACME_SECRET"), "names": sorted(os.environ),
    "pid": os.getpid(), "parent": os.getppid(), "session": os.getsid(0), "loaded": "pyspark.sql.connect.session" in sys.modules,
    "chance": [random.random(), numpy.random.random()], "name": __name__, "beside": sys.path[0],
}))
print("to stderr", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where servers have their sockets, with a short name, as those must have."""
    made = Path(tempfile.mkdtemp(dir=TEMPORARY, prefix="s"))
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    yield made
    for server in servers(made):
        server.kill()
    shutil.rmtree(made)


def servers(folder: Path) -> list[psutil.Process]:
    """The processes that were started with a socket in a folder; the drivers that they forked, too."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(word.startswith(f"{folder}/") for word in process.cmdline()):
                found.append(process)
    return found


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path / "script.py"


def run(script: Path, *arguments: str, **variables: str) -> tuple[dict[str, Any], int]:
    """Run a driver.

    :return: its description of itself, and its status.
    """
    with start_driver([str(script), *arguments], os.environ | variables) as driver:
        assert driver.stdout is not None
        output, error = driver.stdout
    assert error == "to stderr\n"
    found: dict[str, Any] = json.loads(output)
    return found, driver.wait()


def test_a_forked_driver_is_as_one_that_is_started_anew(script: Path, tmp_path: Path) -> None:
    shown, status = run(script, "3", "two words", ACME_SECRET=SECRET)
    assert status == 3
    assert (shown["arguments"], shown["folder"], shown["secret"]) == (["3", "two words"], os.getcwd(), SECRET)
    assert (shown["name"], shown["beside"], shown["session"]) == ("__main__", str(tmp_path), shown["pid"])
    assert {*shown["names"]} == {*os.environ, "ACME_SECRET"}
    assert shown["loaded"]


def test_drivers_share_a_server_that_knows_no_secret(script: Path, folder: Path) -> None:
    first, second = (run(script, "0", ACME_SECRET=SECRET)[0] for _ in range(2))
    assert first["parent"] == second["parent"]
    assert {*first["chance"]}.isdisjoint(second["chance"])
    server = psutil.Process(first["parent"])
    assert SECRET not in f"{server.environ()}{server.cmdline()}"
    assert not [path for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert {path.stat().st_mode & 0o077 for path in folder.iterdir()} == {0}


def test_another_environment_has_another_server(script: Path) -> None:
    first, second = (run(script, "0", **more)[0] for more in ({}, {"OMP_NUM_THREADS": "3"}))
    assert first["parent"] != second["parent"]


def test_a_server_that_ended_is_followed_by_another(script: Path) -> None:
    first, _ = run(script, "0")
    server = psutil.Process(first["parent"])
    server.kill()
    psutil.wait_procs([server], timeout=20)
    second, status = run(script, "0")
    assert (second["loaded"], status) == (True, 0)
    assert second["parent"] != first["parent"]


def test_a_driver_that_nobody_forks_is_started_anew(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "__name__", "acme_no_such_server")
    shown, status = run(script, "4")
    assert (shown["loaded"], shown["parent"], status) == (False, os.getpid(), 4)


def test_where_no_socket_can_be_drivers_are_started_anew(
    script: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = folder / ("x" * 90)
    far.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(far))
    assert run(script, "0")[0]["parent"] == os.getpid()


def started(tmp_path: Path, program: str) -> driver_process.DriverProcess:
    (tmp_path / "waits.py").write_text(
        f"import signal, sys, time\n{program}\nprint('ready', flush=True)\ntime.sleep(60)\n"
    )
    driver = start_driver([str(tmp_path / "waits.py")], os.environ)
    assert driver.stdout is not None
    assert driver.stdout.readline() == "ready\n"
    return driver


@pytest.mark.parametrize(
    ("program", "status"),
    [("", -signal.SIGTERM), ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))", 143)],
)
def test_a_driver_is_stopped(tmp_path: Path, program: str, status: int) -> None:
    with started(tmp_path, program) as driver:
        assert driver.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            driver.wait(0.01)
        driver.terminate()
        assert (driver.wait(20), driver.poll()) == (status, status)
    driver.kill()
    assert driver.wait() == status


def test_a_driver_is_killed_and_the_server_forks_the_next(tmp_path: Path, script: Path) -> None:
    with started(tmp_path, "signal.signal(signal.SIGTERM, signal.SIG_IGN)") as driver:
        driver.terminate()
        driver.kill()
        assert driver.wait(20) == -signal.SIGKILL
    assert run(script, "0")[0]["loaded"]


def test_a_driver_goes_on_without_its_server_and_its_status_is_unknown(tmp_path: Path, folder: Path) -> None:
    with started(tmp_path, "") as driver:
        pid: int = driver.pid  # type: ignore[attr-defined]
        psutil.Process(pid).parent().kill()  # type: ignore[union-attr]
        assert driver.wait(20) == driver_process.UNKNOWN
        psutil.Process(pid).kill()


def test_a_driver_is_listed_by_its_script(tmp_path: Path) -> None:
    with started(tmp_path, "") as driver:
        pid: int = driver.pid  # type: ignore[attr-defined]
        assert "waits.py" in " ".join(psutil.Process(pid).cmdline())
        assert psutil.Process(pid).environ()["PATH"] == os.environ["PATH"]
        driver.kill()


def test_a_server_ends_when_it_was_idle(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s") if len(str(tmp_path)) < 90 else f"{tempfile.gettempdir()}/s")
        listener.listen()
        program = (
            f"from airflow_gobblin.spark import fork_server as s; s._MODULES = (); s.main({listener.fileno()}, 0.1)"
        )
        started_at = time.monotonic()
        done = subprocess.run([sys.executable, "-c", program], pass_fds=[listener.fileno()], timeout=60, check=False)
    assert (done.returncode, time.monotonic() - started_at < 30) == (0, True)


def test_the_key_of_a_server_follows_what_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: Mapping[str, str] = {"PATH": "/bin"}
    before = driver_process._key(asked)
    assert driver_process._key(asked) == before
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(tmp_path)])
    with_other = driver_process._key(asked)
    (tmp_path / "acme.dist-info").mkdir()
    assert len({before, with_other, driver_process._key(asked), driver_process._key({"PATH": "/usr/bin"})}) == 4
