"""The code that is shipped to Spark: all that executors need, always the same bytes, and nothing that can't work there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.hooks.spark import code_folder
from airflow_gobblin.spark import ship as shipping
from airflow_gobblin.spark.ship import ship


@pytest.fixture
def author(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on Python's path, for modules of an author's."""
    folder = tmp_path / "author"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


def names(shipped: Path) -> set[str]:
    with zipfile.ZipFile(shipped) as archive:
        assert archive.testzip() is None
        return set(archive.namelist())


def test_the_package_goes_without_its_airflow_side(tmp_path: Path) -> None:
    found = names(ship((), tmp_path))
    assert {
        "airflow_gobblin/spark/task.py",
        "airflow_gobblin/rows/sinks/parquet.py",
        "airflow_gobblin/model/wire.py",
    } <= found
    left_out = ("airflow_gobblin/operators/", "airflow_gobblin/hooks/", "airflow_gobblin/testing/")
    assert not [name for name in found if name.startswith(left_out)]
    assert not [name for name in found if "__pycache__" in name]


def test_same_content_is_the_same_file_and_other_content_another(tmp_path: Path, author: Path) -> None:
    (author / "acme_mod.py").write_text("X = 1\n")
    first = ship(["acme_mod"], tmp_path / "here")
    elsewhere = ship(["acme_mod"], tmp_path / "there")
    assert (first.name, first.read_bytes()) == (elsewhere.name, elsewhere.read_bytes())
    assert ship(["acme_mod"], tmp_path / "here") == first
    (author / "acme_mod.py").write_text("X = 2\n")
    assert ship(["acme_mod"], tmp_path / "here").name != first.name


def test_a_torn_zip_is_replaced(tmp_path: Path) -> None:
    first = ship((), tmp_path)
    whole = first.read_bytes()
    first.write_bytes(whole[:100])
    assert ship((), tmp_path).read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == [first.name]


def test_modules_packages_and_packages_without_init_import_from_the_zip(tmp_path: Path, author: Path) -> None:
    (author / "acme_flat.py").write_text("from acme_pkg.deep.values import VALUE\n")
    (author / "acme_pkg" / "deep").mkdir(parents=True)
    (author / "acme_pkg" / "__init__.py").write_text("raise_if_imported_here = True\n")
    (author / "acme_pkg" / "deep" / "values.py").write_text("VALUE = 41\n")
    (author / "acme_space" / "inner").mkdir(parents=True)
    (author / "acme_space" / "inner" / "more.py").write_text("MORE = 1\n")
    shipped = ship(["acme_flat", "acme_pkg.deep", "acme_space.inner"], tmp_path)
    program = (
        "import acme_flat, acme_space.inner.more as m, airflow_gobblin.rows.sinks.base; print(acme_flat.VALUE + m.MORE)"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(shipped)!r}); {program}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.stdout == "42\n", done.stderr


def test_modules_are_shipped_compiled_for_this_python_and_as_they_are_for_others(tmp_path: Path, author: Path) -> None:
    (author / "acme_fast.py").write_text("def fail():\n    raise RuntimeError('acme')  # here\n")
    (author / "acme_other.py").write_text("print 'of another Python'\n")
    shipped = ship(["acme_fast", "acme_other"], tmp_path / "code")
    assert {"acme_fast.pyc", "acme_other.py", "airflow_gobblin/spark/task.pyc"} <= names(shipped)
    assert "acme_other.pyc" not in names(shipped)
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(shipped) as archive, zipfile.ZipFile(other, "w") as changed:
        for name in archive.namelist():
            data = archive.read(name)
            changed.writestr(name, b"0000" + data[4:] if name.endswith(".pyc") else data)
    program = "import acme_fast, traceback\nprint(acme_fast.__file__)\n"
    program += "try: acme_fast.fail()\nexcept RuntimeError: traceback.print_exc()"
    for place, suffix in ((shipped, ".pyc"), (other, ".py")):
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(place)!r}); {program}"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        assert done.stdout == f"{place}/acme_fast{suffix}\n", done.stderr
        assert "raise RuntimeError('acme')  # here" in done.stderr


def test_another_process_ships_the_same_bytes(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from airflow_gobblin.spark.ship import ship; ship((), Path(sys.argv[1]))"
    )
    for seed in ("1", "2"):
        command = [sys.executable, "-c", program, str(tmp_path / seed)]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": seed})
    one, two = ([(path.name, path.read_bytes()) for path in (tmp_path / seed).iterdir()] for seed in ("1", "2"))
    assert one == two


def test_locating_a_module_imports_nothing(tmp_path: Path, author: Path) -> None:
    (author / "acme_loud").mkdir()
    (author / "acme_loud" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (author / "acme_loud" / "rows.py").write_text("raise RuntimeError('imported')\n")
    assert "acme_loud/rows.py" in names(ship(["acme_loud.rows"], tmp_path))
    assert not [name for name in sys.modules if name.startswith("acme_loud")]


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("acme_nowhere", "no 'acme_nowhere' on the path of this Python"),
        ("acme_native.nowhere", "no 'nowhere' in it"),
        ("acme_here.nowhere", "'acme_here' is a module, not a package"),
        ("acme_native", "native code"),
        ("math", "native code|no source file"),
        ("sys", "no source file"),
    ],
)
def test_what_cannot_be_shipped_is_named(tmp_path: Path, author: Path, module: str, why: str) -> None:
    (author / "acme_here.py").touch()
    (author / "acme_native").mkdir()
    (author / "acme_native" / "__init__.py").touch()
    (author / "acme_native" / "fast.cpython-311-x86_64-linux-gnu.so").touch()
    with pytest.raises(ConfigurationError, match=why) as caught:
        ship([module], tmp_path / "code")
    assert repr(module) in str(caught.value)
    assert not (tmp_path / "code").exists()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shipping._fresh_folder.cache_clear()
    return tmp_path


def test_code_for_a_driver_beside_its_task_lies_in_a_folder_of_this_user_alone(temporary: Path) -> None:
    """And not below the target, where others may write."""
    folder = code_folder()
    assert folder == temporary / f"airflow-gobblin-{os.getuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert code_folder() == folder


def test_code_for_a_driver_elsewhere_lies_below_the_target_where_only_this_user_may_write(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = code_folder(str(tmp_path))
    finally:
        os.umask(before)
    assert folder == tmp_path / "_gobblin" / f"code-{os.getuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert ship((), code_folder(str(tmp_path))).parent == folder


def planted_by_others(folder: Path) -> None:
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    folder.chmod(0o700)


def planted_for_others(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o770)


def planted_link(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / "elsewhere")


def planted_file(folder: Path) -> None:
    folder.write_text("")
    folder.chmod(0o600)


@pytest.mark.parametrize("plant", [planted_by_others, planted_for_others, planted_link, planted_file])
def test_a_folder_that_somebody_else_may_have_filled_is_not_used(
    temporary: Path, caplog: pytest.LogCaptureFixture, plant: Callable[[Path], None]
) -> None:
    planted = temporary / f"airflow-gobblin-{os.getuid()}"
    try:
        plant(planted)
    except PermissionError:
        pytest.skip("only root can make a folder somebody else's")
    folder = code_folder()
    assert folder.resolve() != planted.resolve()
    assert folder.parent == temporary
    assert (folder.stat().st_uid, stat.S_IMODE(folder.stat().st_mode)) == (os.getuid(), 0o700)
    assert ship((), folder).is_file()
    assert str(planted) in caplog.text
    assert code_folder() == folder  # the same one for this process


@pytest.mark.parametrize("plant", [planted_by_others, planted_for_others, planted_link, planted_file])
def test_a_folder_below_the_target_that_somebody_else_may_have_filled_is_refused(
    tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    planted = tmp_path / "_gobblin" / f"code-{os.getuid()}"
    planted.parent.mkdir()
    try:
        plant(planted)
    except PermissionError:
        pytest.skip("only root can make a folder somebody else's")
    with pytest.raises(
        ConfigurationError, match=r"code that is found there is run, secrets in hand.*leave out `durable`"
    ) as caught:
        code_folder(str(tmp_path))
    assert str(planted) in str(caught.value)
