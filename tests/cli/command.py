"""Commands, run through Airflow's own parser: in this process, or several in one of their own, as `Commands` has them run."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from unittest.mock import patch

_MODULES = (
    "airflow.cli.cli_parser",
    "airflow.dag_processing.dagbag",
    "airflow.serialization.serialized_objects",
    "airflow_gobblin.operators",
    "airflow_gobblin.rows.sinks.parquet",
    "airflow_gobblin.rows.sources.sql.database",
    "airflow_gobblin.storage.stores.sql",
)
"""The modules that commands import which describe DAGs, plan and look."""


@dataclass(frozen=True)
class Done:
    """How a command ended.

    :param out: its standard output;
    :param err: its standard error.
    """

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class _Typing(io.TextIOWrapper):
    """A user at a terminal, who thinks before typing. :ivar meanwhile: what happens while they think."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # as the class of the library itself
        self.meanwhile()
        return super().readline(size)


def run(words: Sequence[str], answer: str = "", meanwhile: Callable[[], object] | None = None) -> Done:
    """Run `airflow <words>`.

    :param answer: what is typed;
    :param meanwhile: what happens between question and answer.
    """
    from airflow.cli.cli_parser import get_parser

    out, err, status = io.StringIO(), io.StringIO(), 0
    typed = _Typing(io.BytesIO(answer.encode()), "utf-8")
    if meanwhile is not None:
        typed.meanwhile = meanwhile
    with contextlib.ExitStack() as around:
        around.enter_context(contextlib.redirect_stdout(out))
        around.enter_context(contextlib.redirect_stderr(err))
        around.enter_context(patch.multiple(sys, stdin=typed, argv=["airflow", *words]))
        try:
            args = get_parser().parse_args([*words])
            args.func(args)
        except SystemExit as end:  # as the interpreter ends by it
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
            err.write("" if end.code is None or isinstance(end.code, int) else str(end.code))
    return Done(status, out.getvalue(), err.getvalue())


class Commands:
    """Runs commands, each time several in a new process, forked by one that has loaded what they import: that takes seconds.

    :param environment: of the processes.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._answers, answers = os.pipe()
        program = [sys.executable, "-m", __name__, str(answers)]
        self._server = subprocess.Popen(
            program, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[answers], text=True
        )
        os.close(answers)

    def run(self, commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> list[Done]:
        """Run commands, one after the other.

        :param environment: more of it.
        """
        print(json.dumps([commands, environment]), file=self._server.stdin, flush=True)
        answer = b""
        while not answer.endswith(b"\n"):
            more = os.read(self._answers, 1 << 16)
            assert more, f"{commands} came to nothing"
            answer += more
        return [Done(**one) for one in json.loads(answer)]

    def close(self) -> None:
        """End the process that forks."""
        self._server.communicate()
        os.close(self._answers)


def serve(answers: int) -> None:
    """Run the commands of each line of the standard input in a fork.

    :param answers: where it writes what became of them.
    """
    for module in _MODULES:
        importlib.import_module(module)
    for line in sys.stdin:
        if pid := os.fork():
            assert os.waitpid(pid, 0)[1] == 0, line
            continue
        commands, environment = json.loads(line)
        os.environ.update(environment)
        left = json.dumps([asdict(run(words)) for words in commands]).encode() + b"\n"
        while left:
            left = left[os.write(answers, left) :]
        os._exit(0)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
