"""Mirrors of folders of real servers of SFTP and HTTP, and of emulated object stores, to a disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from airflow_gobblin.connections import GuardedConnections
from airflow_gobblin.copy.entries import EntryKind
from airflow_gobblin.copy.finders import EachFolder, Manifest
from airflow_gobblin.copy.options import Delete, Existing, Keep, Links
from airflow_gobblin.copy.trees import open_tree
from airflow_gobblin.errors import ConfigurationError, GobblinError
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.run.decide import write_commit_steps
from airflow_gobblin.run.execute import execute_commit_steps
from airflow_gobblin.run.finish import finish
from airflow_gobblin.run.plan import create_work_units
from airflow_gobblin.run.request import RunRequest
from airflow_gobblin.storage.filesystems import open_filesystem
from airflow_gobblin.storage.locations import object_location
from airflow_gobblin.testing import inprocess
from tests.copy.copies import Copying
from tests.copy.mirrors import content, statuses
from tests.services.emulators import Emulator
from tests.services.http_files import HttpServer, running_http
from tests.services.sftp import SftpServer, running_sftp

THEN = 1_600_000_000
OPTIONS: dict[str, Any] = {"existing": Existing.UPDATE, "delete": Delete(1)}


class Given:
    """The connection `shop`."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def uri(self, conn_id: str) -> str:
        return self._uri


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    for path in ("a/one", "a/deep/two", "b/three ü #1"):
        write(home / "photos" / path, path)
    return home


@pytest.fixture
def sftp(home: Path) -> Iterator[SftpServer]:
    with running_sftp(home) as server:
        yield server


@pytest.fixture
def http(home: Path) -> Iterator[HttpServer]:
    with running_http(home) as server:
        yield server


def write(file: Path, text: str, modified: int = THEN) -> None:
    """Write a file of some time ago: servers give times in seconds."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    os.utime(file, (modified, modified))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sftp", "http"])
def test_a_folder_of_a_server_is_mirrored(kind: str, home: Path, tmp_path: Path, request: Any) -> None:
    server: SftpServer | HttpServer = request.getfixturevalue(kind)
    copy = tmp_path / "copy"
    mirror = Mirror("photos", server.url("photos"), str(copy), "unused", EachFolder(), keep=Keep("t"), **OPTIONS)
    opened = inprocess.open_job(mirror, server)
    assert statuses(inprocess.run(opened)) == {"a#files": "committed", "b#files": "committed"}
    assert content(copy) == content(home / "photos")
    assert (copy / "a/one").stat().st_mtime == THEN
    assert statuses(inprocess.run(opened)) == {"a#files": "idle", "b#files": "idle"}
    write(home / "photos/a/one", "other", THEN + 5)
    (home / "photos/a/deep/two").unlink()
    assert statuses(inprocess.run(opened)) == {"a#files": "committed", "b#files": "idle"}
    assert (copy / "a/one").read_text() == "other"
    assert not (copy / "a/deep/two").exists()


@pytest.mark.parametrize("kind", ["sftp", "http"])
def test_a_file_that_changes_after_the_plan_fails_its_file_set_alone(
    kind: str, home: Path, tmp_path: Path, request: Any
) -> None:
    server: SftpServer | HttpServer = request.getfixturevalue(kind)
    copy = tmp_path / "copy"
    mirror = Mirror("photos", server.url("photos"), str(copy), "unused", EachFolder(), **OPTIONS)
    opened = inprocess.open_job(mirror, server)
    plan = create_work_units(opened, RunRequest("r"))
    write(home / "photos/a/one", "a/two", THEN + 60)
    inprocess.extract(opened, plan, server)
    for pack in plan.packs:
        write_commit_steps(opened, plan, pack)
        execute_commit_steps(opened, plan, pack)
    reports = {report.urn: report for report in finish(opened, plan)}
    assert statuses(reports) == {"a#files": "failed", "b#files": "committed"}
    assert sorted(content(copy)) == ["b", "b/three ü #1"]


def test_sftp_keeps_permissions_and_links_as_they_are(home: Path, sftp: SftpServer, tmp_path: Path) -> None:
    (home / "photos/a/one").chmod(0o640)
    (home / "photos/a/link").symlink_to("deep/two")
    copy = tmp_path / "copy"
    mirror = Mirror("p", sftp.url("photos"), str(copy), "unused", keep=Keep("tp"), links=Links.COPY, **OPTIONS)
    opened = inprocess.open_job(mirror, sftp)
    assert statuses(inprocess.run(opened)) == {"p#files": "committed"}
    assert content(copy) == content(home / "photos")
    assert (copy / "a/one").stat().st_mode & 0o7777 == 0o640
    assert statuses(inprocess.run(opened)) == {"p#files": "idle"}
    with pytest.raises(ConfigurationError, match="links of a server of SFTP are not followed"):
        open_tree(sftp.url("photos"), sftp, Links.FOLLOW)


def test_a_name_that_is_not_utf_8_comes_by_sftp(home: Path, sftp: SftpServer, tmp_path: Path) -> None:
    odd = os.fsencode(home) + b"/photos/a/\xff"
    with open(odd, "w") as file:
        file.write("odd")
    copying = Copying(sftp.url("photos/a"), str(tmp_path / "copy"), connections=sftp)
    result = copying.run()
    assert result.failure is None
    assert (copying.staged(result) / os.fsdecode(b"\xff")).read_text() == "odd"


def test_a_key_opens_a_server_of_sftp(sftp: SftpServer) -> None:
    by_key = Given(sftp.connection(password="", private_key=sftp.client_key))
    assert [*open_tree(sftp.url("photos"), by_key).folders()] == ["a", "b"]
    bad = Given(sftp.connection(private_key="-----BEGIN nothing"))
    with pytest.raises(ConfigurationError, match="its key can't be read"):
        open_tree(sftp.url("photos"), bad)


def test_a_server_of_sftp_has_to_be_known(sftp: SftpServer, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))  # where no server is known
    unknown = open_tree(sftp.url("photos"), Given(sftp.connection(host_key="")))
    with pytest.raises(OSError, match="not trusted"):
        unknown.entry("a")
    unchecked = Given(sftp.connection(host_key="", no_host_key_check="true"))
    assert [*open_tree(sftp.url("photos"), unchecked).folders()] == ["a", "b"]


def test_a_wrong_password_is_an_error_without_it(sftp: SftpServer, tmp_path: Path) -> None:
    wrong = Given(sftp.connection(password="wrong-password"))
    copying = Copying(sftp.url("photos"), str(tmp_path / "copy"), connections=sftp)
    unit = copying.unit()
    result = replace(copying, connections=wrong).run(unit)
    assert result.failure is not None
    assert "Permission denied" in str(result.failure)
    assert "wrong-password" not in str(result.failure)


@pytest.mark.parametrize("kind", ["sftp", "http"])
def test_credentials_go_to_the_host_of_their_connection_only(kind: str, request: Any) -> None:
    server: SftpServer | HttpServer = request.getfixturevalue(kind)
    url = server.url("photos") if kind == "sftp" else f"http://shop@127.0.0.1:{server.port}/photos"
    elsewhere = Given(server.uri("shop").replace("127.0.0.1", "files.example"))
    with pytest.raises(ConfigurationError, match=r"of host 'files.example', and the location names '127\.0\.0\.1'"):
        open_tree(url, elsewhere)
    with pytest.raises(ConfigurationError, match="it is of type 'postgres'"):
        open_tree(url, Given("postgres://127.0.0.1"))


def test_a_server_of_http_is_given_the_password_and_the_headers_of_its_connection(http: HttpServer) -> None:
    http.expect("ann", "s3cr3t/@")
    http.user, http.extra = "ann:s3cr3t%2F%40@", "?X-Token=abcdefgh&timeout=3"
    tree = open_tree(f"http://shop@127.0.0.1:{http.port}/photos", http)
    assert [*tree.folders()] == ["a", "b"]
    assert [headers.get("X-Token") for _, _, headers in http.asked] == ["abcdefgh"]
    assert all("timeout" not in headers for _, _, headers in http.asked)
    without = open_tree(http.url("photos"))
    with pytest.raises(PermissionError, match="the server answered 401"):
        without.entry("a")


def test_a_redirect_to_another_host_takes_no_credentials_along(http: HttpServer, tmp_path: Path) -> None:
    write(tmp_path / "other/one", "a/one")
    http.user, http.extra = "ann:secret-1@", "?X-Token=abcdefgh"
    with running_http(tmp_path / "other") as other:
        http.redirected["/photos/a/one"] = f"http://localhost:{other.port}/one"
        tree = open_tree(f"http://shop@127.0.0.1:{http.port}/photos", http)
        with tree.open("a/one") as file:
            assert file.read() == b"a/one"
        assert [{"Authorization", "X-Token"} & {*headers} for _, _, headers in other.asked] == [set()]
    assert all({"Authorization", "X-Token"} <= {*headers} for _, _, headers in http.asked)


def test_without_an_index_a_manifest_names_the_files(home: Path, http: HttpServer, tmp_path: Path) -> None:
    write(home / "photos/files.txt", "a/one\nb/three ü #1\n")
    for folder in ("a", "b", "a/deep"):
        http.refused[f"/photos/{folder}/?"] = HTTPStatus.FORBIDDEN
    (home / "photos/index.html").write_text("no index")
    copy = tmp_path / "copy"
    mirror = Mirror("p", http.url("photos"), str(copy), "unused", Manifest("files.txt"), **OPTIONS)
    assert statuses(inprocess.run(inprocess.open_job(mirror, http))) == {"p#files": "committed"}
    assert {path for path, data in content(copy).items() if data != "/"} == {"a/one", "b/three ü #1"}


def test_a_listing_of_http_that_fails_in_part_is_an_error(http: HttpServer) -> None:
    http.refused["/photos/a/deep/two"] = HTTPStatus.FORBIDDEN
    tree = open_tree(http.url("photos"))
    with pytest.raises(PermissionError):
        [*tree.walk()]
    http.refused = {"/photos/b/": HTTPStatus.NOT_FOUND}
    with pytest.raises(FileNotFoundError):
        [*tree.walk()]


def test_a_file_without_a_size_or_a_page_that_is_no_index_is_an_error(http: HttpServer, home: Path) -> None:
    http.without = ("Content-Length",)
    with pytest.raises(OSError, match="the server doesn't report its size"):
        open_tree(http.url("photos")).entry("a/one")
    http.without, http.sent = (), {"Content-Encoding": "gzip"}
    with pytest.raises(OSError, match="its index page is compressed"):
        [*open_tree(http.url("photos")).folders()]
    http.without = ("Content-Type",)
    with pytest.raises(NotADirectoryError, match="no index page"):
        [*open_tree(http.url("photos")).folders()]


def test_an_index_shows_what_is_right_below_it_only(http: HttpServer, home: Path) -> None:
    links = [
        "../",
        "/photos/",
        "?C=M;O=A",
        "a/one",
        "one",
        "one#top",
        "/photos/a/%6fne",
        "https://example.org/x",
        "deep/",
    ]
    links += ["//127.0.0.1:1/photos/a/x", "mailto:ann@example.org", ".", "%2e%2e/x", "deep/two", "sub%2Fx"]
    page = "".join(f'<tr><td><A class="x" HREF="{link}">{link}</A>' for link in links)
    (home / "photos/a/index.html").write_text(f"<html><a name=top>{page}")
    tree = open_tree(http.url("photos"))
    assert [(entry.path, entry.kind) for entry in tree.walk("a", lambda folder: False)] == [
        ("a/deep", EntryKind.FOLDER),
        ("a/one", EntryKind.FILE),
    ]


def test_a_body_that_ends_too_early_is_an_error(http: HttpServer, home: Path, tmp_path: Path) -> None:
    copying = Copying(http.url("photos/a"), str(tmp_path / "copy"), connections=http)
    unit = copying.unit()
    http.cut = 3
    result = copying.run(unit)
    assert result.failure is not None
    assert "3 bytes read" in str(result.failure)
    assert content(tmp_path / "copy") == {}


@pytest.mark.parametrize("store", ["gcs", "azurite"])
def test_a_bucket_of_an_emulated_store_is_mirrored(store: str, tmp_path: Path, request: Any) -> None:
    emulator: Emulator = request.getfixturevalue(store)
    url, copy = emulator.url(f"{emulator.create_bucket()}/lake"), tmp_path / "copy"
    location = object_location(url)
    assert location is not None
    filesystem = open_filesystem(location, emulator)
    put: Callable[[str, bytes], object] = lambda path, data: filesystem.pipe_file(f"{location.path}/{path}", data)  # noqa: E731
    put("a/one", b"one")
    put("b/deep/two", b"two")
    mirror = Mirror("photos", url, str(copy), "unused", EachFolder(), **OPTIONS)
    opened = inprocess.open_job(mirror, emulator)
    assert statuses(inprocess.run(opened)) == {"a#files": "committed", "b#files": "committed"}
    assert content(copy) == {"a": "/", "a/one": b"one", "b": "/", "b/deep": "/", "b/deep/two": b"two"}
    assert statuses(inprocess.run(opened)) == {"a#files": "idle", "b#files": "idle"}
    put("a/one", b"one more")
    filesystem.rm_file(f"{location.path}/b/deep/two")
    put("b/three", b"3")
    assert statuses(inprocess.run(opened)) == {"a#files": "committed", "b#files": "committed"}
    assert content(copy) == {"a": "/", "a/one": b"one more", "b": "/", "b/three": b"3"}


@pytest.mark.slow
def test_a_missing_server_is_named(tmp_path: Path) -> None:
    mirror = Mirror("p", "http://127.0.0.1:9/photos", str(tmp_path / "copy"), "unused", EachFolder())
    with pytest.raises(GobblinError, match=r"127\.0\.0\.1:9"):
        mirror.work.datasets(GuardedConnections(Given("")))
