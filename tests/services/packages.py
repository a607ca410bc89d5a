"""This project's wheel, and Python environments of their own to install it into."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.services.environment import ROOT

__all__ = ["build_wheel", "install", "make_environment", "pip"]

_UV = str(ROOT / ".build" / "uv" / "bin" / "uv")


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout into `folder` and return its path."""
    _run(
        _UV, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(folder), str(ROOT)
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def make_environment(folder: Path, *requirements: str | Path) -> Path:
    """Make an environment in `folder` with `requirements` and what they need; return its Python.

    Versions are those that this checkout is tested with. A wheel's path is a requirement too.
    """
    _run(_UV, "venv", "--python", sys.executable, str(folder))
    python = folder / "bin" / "python"
    if requirements:
        install(python, *requirements)
    return python


def install(python: Path, *requirements: str | Path, dependencies: bool = True, again: bool = False) -> None:
    """Install `requirements` into the environment of `python`, with or without what they need; `again`, if they are installed."""
    options = [] if dependencies else ["--no-deps"]
    options += ["--reinstall"] if again else []
    pip(python, "install", *options, *map(str, requirements))


def pip(python: Path, command: str, *words: str) -> None:
    """Run `pip` as typed in this checkout, on the environment of `python`. Versions are those that are tested."""
    options = [] if "--no-deps" in words else ["--constraints", str(ROOT / ".setup" / "pins.txt")]
    command_line = (_UV, "pip", command, "--python", str(python), *options, *words)
    try:  # the packages of the set-up are in the installer's cache; asking a registry again may cost a build of pyspark
        _run(*command_line, "--offline")
    except RuntimeError:
        _run(*command_line)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
