"""Commands, run through Airflow's own parser: in this process, or several in one of their own (`python -m tests.cli.command`)."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from unittest.mock import patch


@dataclass(frozen=True)
class Done:
    """How a command ended. :param out: what it printed; :param err: what it told people."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(words: Sequence[str], answer: str = "") -> Done:
    """Run `airflow <words>`. :param answer: what is typed."""
    from airflow.cli.cli_parser import get_parser

    out, err, status = io.StringIO(), io.StringIO(), 0
    typed = io.TextIOWrapper(io.BytesIO(answer.encode()), "utf-8")
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
