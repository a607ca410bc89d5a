"""An Airflow with DAG files, for the commands that import one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tests.cli.command import Commands, Done
from tests.services.environment import ROOT


class Deployment:
    """An Airflow that has a metadata database and some DAG files.

    :param dags: the content of each DAG file, with `{folder}` for the folder that everything is in.
    :param commands: further commands, to be run at the end.
    """

    def __init__(self, folder: Path, dags: Mapping[str, str], *commands: str) -> None:
        self.folder = folder
        environment = {
            **os.environ,
            "AIRFLOW_HOME": str(folder / "home"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/home/airflow.db",
            "PYTHONPATH": str(ROOT),
        }
        (folder / "home").mkdir()
        (folder / "dags").mkdir()
        for name, text in dags.items():
            (folder / "dags" / name).write_text(text.replace("{folder}", str(folder)))
        self._commands = Commands(environment)
        for done in self.run("db migrate", "dags reserialize", *commands):
            assert done.status == 0, done

    def run(self, *commands: str) -> list[Done]:
        """Run commands, all in one new process."""
        return self._commands.run([words.split() for words in commands], {})

    def close(self) -> None:
        """End its process."""
        self._commands.close()

    def seen(self) -> set[str]:
        """All files, except Airflow's own."""
        found = (path.relative_to(self.folder) for path in self.folder.rglob("*"))
        return {str(path) for path in found if path.parts[0] not in ("home", "dags")}
