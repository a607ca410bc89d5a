"""The code blocks of `docs/mirrors.md`, and the DAG that it shows."""

from __future__ import annotations

import gzip
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from airflow_gobblin.copy.conversion.converters import FileConverter
from airflow_gobblin.copy.registering import HiveTable
from airflow_gobblin.mirror import Mirror
from tests.copy.mirrors import Trees, statuses
from tests.services.environment import ROOT
from tests.test_docs import BLOCK

PAGE = (ROOT / "docs" / "mirrors.md").read_text()
BLOCKS = dict(BLOCK.findall(PAGE))


def run(name: str) -> dict[str, Any]:
    """Run a block as a module.

    :return: what it defines.
    """
    module = sys.modules[f"acme_{name}"] = ModuleType(f"acme_{name}")
    exec(compile(BLOCKS[name], f"docs/mirrors.md, {name}", "exec"), vars(module))
    return vars(module)


def test_every_block_is_run() -> None:
    assert set(BLOCKS) == {"mirror", "converter", "check", "register", "finder"}


def test_a_dag_of_a_mirror() -> None:
    defined = run("mirror")
    dag, mirror = defined["dag"], defined["photos"]
    assert isinstance(mirror, Mirror)
    assert [task_id.removeprefix("photos.") for task_id in dag.task_ids] == TASKS


TASKS = [
    "verify_recover",
    "create_work_units",
    "pack.extract",
    "pack.write_commit_steps",
    "pack.execute_commit_steps",
    "finish",
]


def test_a_finder_of_ones_own(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"datasets": run("finder")["Teams"]()})
    for path in ("ann/inbox/2026-01/mail", "ann/inbox/2026-02/mail", "bo/inbox/2026-01/mail"):
        trees.write(path)
    assert statuses(trees.run()) == {
        "ann#2026-01": "committed",
        "ann#2026-02": "committed",
        "bo#2026-01": "committed",
    }
    assert (trees.target / "ann/2026-02/mail").read_text() == "ann/inbox/2026-02/mail"


def test_a_converter_of_ones_own(tmp_path: Path) -> None:
    mirror = run("converter")["exports"]
    assert isinstance(mirror, Mirror)
    trees = Trees(tmp_path, {"convert": mirror.convert})
    trees.write("a/table.csv.gz").write_bytes(gzip.compress("Zürich\r\n".encode("cp1252")))
    assert statuses(trees.run()) == {"a#files": "committed"}
    assert (trees.target / "a/table.csv.zst").read_bytes()[:4] == b"\x28\xb5\x2f\xfd"
    (convert,) = (one for one in mirror.convert if one.takes == ".csv" and isinstance(one, FileConverter))
    assert b"".join(convert.convert(iter(["Zürich\r\n".encode("cp1252")]))) == "Zürich\n".encode()


def test_a_check_of_ones_own(tmp_path: Path) -> None:
    trees = Trees(tmp_path, {"checks": (run("check")["NoEmptyFiles"](),)})
    trees.write("a/_SUCCESS").write_bytes(b"")
    trees.write("b/empty").write_bytes(b"")
    reports = trees.run()
    assert statuses(reports) == {"a#files": "committed", "b#files": "failed"}
    assert "1 files are empty, the first is 'empty'" in reports["b#files"].text


def test_a_mirror_that_registers_tables() -> None:
    defined = run("register")
    assert isinstance(defined["lake"].register, HiveTable)
    assert defined["dag"].get_task("lake.pack.execute_commit_steps").spark.conf == defined["hive"]


def test_the_dag_that_mirrors_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRROR_LAKE", str(tmp_path))
    spec = importlib.util.spec_from_file_location("mirror_dataset", ROOT / "dags" / "mirror_dataset.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.package.target == f"{tmp_path}/copy"
    assert Path(module.package.source).name == "airflow"
