"""The demo: the example DAG on real data, four runs of it, one killed between two publish steps, and every row checked.

Run by `make demo`. All it makes is below `.build/demo`; source, lake and logs stay there to be looked at.
"""

from __future__ import annotations

import fcntl
import shutil
import signal
import sys
from types import FrameType

from tests.demo.story import DemoError, tell
from tests.services.environment import ROOT, use_environment

FOLDER = ROOT / ".build" / "demo"


def main() -> int:
    use_environment()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    with FOLDER.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("make demo: FAILED, another demo is running in this checkout")
            return 1
        return _run()


def _run() -> int:
    try:
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir()
        print(f"\nmake demo: {tell(FOLDER)}")
    except KeyboardInterrupt:
        print("\nmake demo: interrupted; all that it started is stopped")
        return 130
    except (DemoError, RuntimeError) as error:
        (FOLDER / "failure.txt").write_text(str(error))
        print(
            f"\nmake demo: FAILED: {str(error).splitlines()[0]} (all of it is in {FOLDER.relative_to(ROOT)}/failure.txt)"
        )
        return 1
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
