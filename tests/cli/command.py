"""Commands, run through Airflow's own parser: in this process, or several in one of their own (`python -m tests.cli.command`)."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from unittest.mock import patch


@dataclass(frozen=True)
class Done:
    """How a command ended. :param out: its standard output; :param err: its standard error."""

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
    """Run `airflow <words>`. :param answer: what is typed; :param meanwhile: what happens between question and answer."""
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


if __name__ == "__main__":
    print(json.dumps([asdict(run(words)) for words in json.loads(sys.argv[1])]))
