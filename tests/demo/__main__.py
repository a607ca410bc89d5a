"""The demo: an example DAG on real data, with a run that is killed between two publish steps, and everything checked.

Run it with `make demo`: tables, of which every row is checked; with `make demo PART=mirror`: files; with `make demo PART=kafka`:
topics; with `make demo PART=pipeline`: stages; or with `make demo PART=iceberg`: an Iceberg table. It writes below `.build/demo`
only; source, lake and logs stay there.
"""

from __future__ import annotations

import fcntl
import shutil
import signal
import sys
import traceback
from importlib import import_module
from types import FrameType

from tests.demo.show import signs_of_life
from tests.demo.verdict import DemoError
from tests.services.airflow import Airflow
from tests.services.environment import ROOT, use_environment

FOLDER = ROOT / ".build" / "demo"
FAILURE = FOLDER / "failure.txt"
PARTS = {"tables": "story", "mirror": "mirror", "kafka": "kafka", "pipeline": "pipeline", "iceberg": "iceberg"}
"""Their modules; the set-up brings only what the one that runs imports."""


def main(part: str = "tables") -> int:
    if part not in PARTS:
        print(f"make demo: FAILED: there is no PART={part}; there are {', '.join(PARTS)}")
        return 1
    use_environment()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    with FOLDER.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("make demo: FAILED: another demo is running in this checkout")
            return 1
        return _run(part)


def _run(part: str) -> int:
    try:
        Airflow(FOLDER / "airflow", {}).stop()  # what a killed demo left
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir()
        with signs_of_life():
            last = import_module(f"tests.demo.{PARTS[part]}").play(FOLDER)
        print(f"\nmake demo: {last}")
    except KeyboardInterrupt:
        print("\nmake demo: interrupted; all that it started is stopped")
        return 130
    except DemoError as error:
        print(f"\nmake demo: FAILED: {error}")
        return 1
    except Exception as error:
        FAILURE.write_text(traceback.format_exc())
        first = (str(error) or repr(error)).splitlines()[0].rstrip(":")
        print(f"\nmake demo: FAILED: {first}; all of it is in {FAILURE.relative_to(ROOT)}")
        return 1
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
