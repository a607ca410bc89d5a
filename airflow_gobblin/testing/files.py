"""The contract of file systems and object stores: what publishing relies on."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.work import StagedFile
from airflow_gobblin.storage.files.base import Attributes, FileIdentity, Files, Uploads, with_listing_cache
from airflow_gobblin.testing.threads import together

__all__ = ["FilesContract", "FoldersContract", "UploadsContract"]

STAGED, TARGET = "_gobblin/s/0123/a0/u0/u0-0.txt", "trips/0123-u0-0.txt"
RACERS = 4
RACES = 10


def write(files: Files, path: str, data: bytes = b"data") -> FileIdentity:
    """Create a file and return its identity."""
    with files.create(path) as out:
        out.write(data)
    found = files.identity(path)
    assert found is not None
    return found


def stage(files: Files, content: bytes = b"rows", staged: str = STAGED, target: str = TARGET) -> StagedFile:
    """Stage a file of one row."""
    out = files.stage(staged, target)
    out.write(content)
    return out.finish(1)


def publish(files: Files, staged: StagedFile, target: str = TARGET) -> None:
    """Publish a staged file as its storage does: by completing its upload, by a link, or by a rename where there are no links."""
    if staged.upload is not None:
        uploads_of(files).complete(target, staged.upload)
        return
    files.make_folder(target.rpartition("/")[0])
    try:
        files.link(staged.path, target)
    except OSError as error:
        if error.errno != errno.ENOTSUP or not files.moves_folders:
            raise
        files.rename_new(staged.path, target)


def uploads_of(files: Files) -> Uploads:
    """Return the uploads of an object store."""
    assert files.uploads is not None
    return files.uploads


class FilesContract:
    """The suite of `Files` that have no folders to move and keep no uploads. Override the fixture `files`."""

    @pytest.fixture
    def files(self) -> Files:
        """Return files under a root that is still empty, and needn't exist."""
        raise NotImplementedError("override the fixture `files`")

    def test_the_suite_is_that_of_its_kind(self, files: Files) -> None:
        assert files.moves_folders == isinstance(self, FoldersContract), "use FoldersContract where folders are moved"
        assert (files.uploads is not None) == isinstance(self, UploadsContract), (
            "use UploadsContract where it has uploads"
        )

    def test_a_file_is_created_once_with_its_folders(self, files: Files) -> None:
        found = write(files, "a/b/c")
        assert found.size == 4
        with pytest.raises(FileExistsError), files.create("a/b/c") as out:
            out.write(b"other")
        assert files.read("a/b/c") == b"data"
        assert files.identity("a/b/c") == found

    @pytest.mark.parametrize("content", [b"", b"\0\xff\n", b"x" * 1_000_000], ids=["empty", "binary", "1 MB"])
    def test_any_bytes_are_kept(self, files: Files, content: bytes) -> None:
        assert write(files, "a", content).size == len(content)
        assert files.read("a") == content
        assert files.checksum("a") == hashlib.sha256(content).hexdigest()

    def test_a_part_of_a_file_is_read(self, files: Files) -> None:
        write(files, "a/b", b"0123456789")
        assert [files.read_part("a/b", 0, 1), files.read_part("a/b", 3, 4)] == [b"0", b"3456"]
        assert files.read_part("a/b", 8, 4) == b"89"
        with pytest.raises(FileNotFoundError):
            files.read_part("a/c", 0, 1)

    def test_a_missing_file_or_folder_is_no_error_where_it_is_looked_for(self, files: Files) -> None:
        write(files, "file")
        for path in ("x", "x/y", "file/x"):
            assert files.identity(path) is None
            assert files.modified(path) is None
            assert files.names([path]) == [0]
        assert [*files.walk("x")] == []
        assert files.folders("x") == ()
        assert files.identities("x") == {}
        assert files.identities("file") == {}
        files.remove_tree("x")
        files.remove_folder("x")
        with pytest.raises(FileNotFoundError):
            files.read("x")

    def test_an_identity_is_that_of_one_content(self, files: Files) -> None:
        one, other = write(files, "a/1", b"1"), write(files, "a/2", b"2")
        assert one != other
        assert files.identity("a/1") == one
        assert files.identities("a") == {"1": one, "2": other}
        files.unlink("a/1")
        assert files.identity("a/1") is None
        assert write(files, "a/1", b"3") != one

    def test_a_file_was_written_at_some_time(self, files: Files) -> None:
        write(files, "a")
        written = files.modified("a")
        assert written is not None
        assert written.utcoffset() == timedelta()

    def test_all_files_and_folders_are_listed(self, files: Files) -> None:
        names = ["a/2/x", "a/10/x", "a/z", "a/y", "ab/x", "top"]
        for name in names:
            write(files, name)
        assert sorted(files.walk(".")) == sorted(names)
        assert sorted(files.walk("a")) == ["a/10/x", "a/2/x", "a/y", "a/z"]
        assert (files.folders("."), files.folders("a"), files.folders("a/2")) == (("a", "ab"), ("10", "2"), ())

    def test_a_folder_is_filled_once_anything_is_in_it(self, files: Files) -> None:
        for name in ("a/b/x", "ab/x", "file"):
            write(files, name)
        assert files.filled(["a", "a/b", "ab", "a/c", "b", "file", "file/x", "a/b/x"]) == [True] * 3 + [False] * 5
        files.unlink("ab/x")
        assert files.filled(["ab", "a"]) == [False, True]
        assert files.filled([]) == []

    def test_a_tree_is_removed_with_nothing_beside_it(self, files: Files) -> None:
        for name in ("a/b/1", "a/b/2", "a/bc", "ab", "b"):
            write(files, name)
        files.remove_tree("a/b")
        files.remove_tree("a/b")
        assert sorted(files.walk(".")) == ["a/bc", "ab", "b"]

    def test_a_tree_is_removed_also_when_many_do_it(self, files: Files) -> None:
        for number in range(60):
            write(files, f"tree/{number % 7}/{number}")
        write(files, "other")
        together(lambda _: files.remove_tree("tree"), RACERS)
        assert [*files.walk(".")] == ["other"]

    def test_a_staged_file_is_seen_by_nobody_until_it_is_published(self, files: Files) -> None:
        staged = stage(files)
        assert (staged.size, staged.rows, staged.checksum) == (4, 1, hashlib.sha256(b"rows").hexdigest())
        assert files.identity(TARGET) is None
        assert [*files.walk("trips")] == []
        publish(files, staged)
        assert files.read(TARGET) == b"rows"
        found = files.identity(TARGET)
        assert found is not None
        assert found.size == staged.size

    def test_a_staged_output_that_is_aborted_leaves_nothing(self, files: Files) -> None:
        out = files.stage(STAGED, TARGET)
        out.write(b"rows")
        out.abort()
        out.abort()
        assert [*files.walk(".")] == []
        assert files.uploads is None or [*files.uploads.open_below(".")] == []

    def test_publishing_never_overwrites(self, files: Files) -> None:
        staged = stage(files, b"ours")
        theirs = write(files, TARGET, b"theirs")
        with pytest.raises(FileExistsError):
            publish(files, staged)
        assert files.identity(TARGET) == theirs
        assert files.read(TARGET) == b"theirs"

    def test_publishing_again_changes_nothing(self, files: Files) -> None:
        staged = stage(files)
        publish(files, staged)
        found = files.identity(TARGET)
        with suppress(OSError):  # it may have been done already: the caller looks
            publish(files, staged)
        assert files.identity(TARGET) == found
        assert files.read(TARGET) == b"rows"

    def test_of_two_attempts_one_is_published_whole(self, files: Files) -> None:
        one = stage(files, b"one", "_gobblin/s/0123/a0/u0/u0-0.txt")
        other = stage(files, b"the other's", "_gobblin/s/0123/a1/u0/u0-0.txt")
        publish(files, one)
        with pytest.raises(FileExistsError):
            publish(files, other)
        assert files.read(TARGET) == b"one"

    def test_racing_attempts_publish_one_whole_file(self, files: Files) -> None:
        for race in range(RACES):
            target = f"trips/{race}.txt"
            staged = [stage(files, b"%d" % n, f"_gobblin/s/{race}/{n}.txt", target) for n in range(RACERS)]
            published: list[int] = []

            def attempt(
                n: int, target: str = target, staged: Sequence[StagedFile] = staged, published: list[int] = published
            ) -> None:
                with suppress(FileExistsError):
                    publish(files, staged[n], target)
                    published.append(n)

            together(attempt, RACERS)
            (winner,) = published
            assert files.read(target) == b"%d" % winner

    def test_a_missing_staged_file_is_not_published(self, files: Files) -> None:
        staged = stage(files)
        if staged.upload is None:
            files.unlink(staged.path)
        else:
            uploads_of(files).abort(TARGET, staged.upload.id)
        with pytest.raises(OSError):  # noqa: PT011 - a FileNotFoundError, where the store knows it
            publish(files, staged)
        assert files.identity(TARGET) is None

    def test_a_cached_listing_shows_the_same(self, files: Files) -> None:
        found = {path: write(files, path) for path in ("a/b/1", "a/b/2", "a/1", "top")}
        cached = with_listing_cache(files, "a")
        assert {path: cached.identity(path) for path in found} == found
        assert cached.identity("a/b/3") is None
        later = write(files, "a/b/3")
        assert cached.identity("a/b/3") == later, "a file that was created after the listing"
        assert cached.read("a/b/1") == b"data"

    @pytest.mark.parametrize("path", ["", "/etc", "..", "a/../b", "a/..", "./a", "a//b", "a/", "a\0b"])
    def test_no_path_leaves_the_root(self, files: Files, path: str) -> None:
        for call in (
            files.identity,
            files.read,
            lambda path: files.create(path).close(),
            files.unlink,
            files.make_folder,
            files.remove_folder,
            files.identities,
            files.remove_tree,
            files.sync_file,
        ):
            with pytest.raises(ConfigurationError, match="must be a plain relative path below the target root"):
                call(path)

    def test_another_root_in_the_same_storage_has_files_of_its_own(self, files: Files) -> None:
        write(files, "a/1")
        other = files.other(f"{files.root}-other")
        assert other.root == f"{files.root}-other"
        assert [*other.walk(".")] == []
        write(other, "b")
        assert [*files.walk(".")] == ["a/1"]
        other.unlink("b")

    def test_records_in_a_folder_are_write_once(self, files: Files) -> None:
        records = files.records("_gobblin/marks")
        assert records.put_if_absent("a/1", b"one")
        assert not records.put_if_absent("a/1", b"two")
        assert files.records("_gobblin/marks").get("a/1") == b"one"
        assert list(files.records("_gobblin/other").list("")) == []

    def test_what_was_written_can_be_synced(self, files: Files) -> None:
        write(files, "a/b/c")
        files.make_private("a/private")
        files.make_private("a/private")
        files.sync_file("a/b/c")
        files.sync_folder("a/b")
        assert files.leads_to("a/b") is None

    def test_it_renames_without_overwriting_or_reports_that_it_can_not(self, files: Files) -> None:
        found = write(files, "own/x")
        renames = files.renames_new("own")
        assert renames == files.renames_new("own")
        assert [*files.walk(".")] == ["own/x"], "trying it out leaves nothing"
        if renames:
            files.rename_new("own/x", "own/y")
            assert files.identities("own") == {"y": found}
            return
        with pytest.raises(OSError, match=r"^\[Errno \d+\]") as refused:
            files.rename_new("own/x", "own/y")
        assert refused.value.errno == errno.ENOTSUP
        assert files.identities("own") == {"x": found}

    def test_it_states_what_its_callers_rely_on(self, files: Files) -> None:
        assert files.root
        assert files.parallel >= 1
        assert files.settles_after >= timedelta()


class FoldersContract(FilesContract):
    """The suite of `Files` with folders that are moved by one rename. Override the fixture `files`."""

    links: bool = True
    """Whether a file can have two names."""

    def refuses_links(self, files: Files) -> bool:
        """Return whether each file has only one name. If so, a second one must be refused, and leave nothing."""
        if self.links:
            return False
        written = write(files, "only")
        with pytest.raises(OSError, match=r"^\[Errno \d+\]") as refused:
            files.link("only", "other")
        assert refused.value.errno == errno.ENOTSUP
        assert [files.identity(name) for name in files.walk(".")] == [written]
        files.make_folder("own")
        assert files.renames_new("own"), "else nothing could be published"
        return True

    def test_a_file_has_a_second_name_or_the_link_is_refused(self, files: Files) -> None:
        if not self.refuses_links(files):
            written = write(files, "a", b"1")
            files.link("a", "b")
            assert [files.identity(name) for name in sorted(files.walk("."))] == [written, written]

    def test_a_second_name_keeps_the_identity_and_outlives_the_first(self, files: Files) -> None:
        if self.refuses_links(files):
            return
        staged = write(files, "staging/x", b"mine")
        files.make_folder("target")
        files.link("staging/x", "target/x")
        assert files.names(["staging/x", "target/x"]) == [2, 2]
        files.unlink("staging/x")
        assert files.identity("target/x") == staged
        assert files.names(["staging/x", "target/x"]) == [0, 1]
        with pytest.raises(FileNotFoundError):
            files.unlink("staging/x")

    def test_a_link_needs_its_source_and_the_folder_of_its_target(self, files: Files) -> None:
        if self.refuses_links(files):
            return
        write(files, "staging/x")
        with pytest.raises(FileNotFoundError):
            files.link("staging/x", "none/x")
        with pytest.raises(FileNotFoundError):
            files.link("staging/none", "staging/y")
        assert [*files.walk(".")] == ["staging/x"]

    def test_a_folder_is_moved_whole_and_its_files_keep_their_identity(self, files: Files) -> None:
        staged = {name: write(files, f"staging/u0/{name}") for name in ("0", "1")}
        files.make_folder("target")
        files.move_folder("staging/u0", "target/u0")
        assert files.identities("target/u0") == staged
        assert files.identities("staging/u0") == {}
        assert sorted(files.walk(".")) == ["target/u0/0", "target/u0/1"]

    @pytest.mark.parametrize("kind", ["file", "empty folder", "folder"])
    def test_a_folder_is_moved_over_nothing(self, files: Files, kind: str) -> None:
        write(files, "staging/u0/0", b"mine")
        files.make_folder("target")
        match kind:
            case "file":
                write(files, "target/u0")
            case "folder":
                write(files, "target/u0/theirs")
            case _:
                files.make_folder("target/u0")
        before = files.identity("target/u0"), [*files.walk("target")]
        with pytest.raises(FileExistsError):
            files.move_folder("staging/u0", "target/u0")
        assert (files.identity("target/u0"), [*files.walk("target")]) == before
        assert files.read("staging/u0/0") == b"mine"

    def test_of_many_that_move_a_folder_one_does(self, files: Files) -> None:
        for race in range(RACES):
            write(files, f"staging/{race}/0")
            moved: list[int] = []

            def move(racer: int, race: int = race, moved: list[int] = moved) -> None:
                with suppress(FileExistsError, FileNotFoundError):
                    files.move_folder(f"staging/{race}", f"{race}")
                    moved.append(racer)

            together(move, RACERS)
            assert len(moved) == 1
            assert [*files.walk(f"{race}")] == [f"{race}/0"]

    def test_a_missing_folder_is_not_moved(self, files: Files) -> None:
        files.make_folder("target")
        with pytest.raises(FileNotFoundError):
            files.move_folder("none", "target/none")
        write(files, "staging/u0/0")
        with pytest.raises(FileNotFoundError):
            files.move_folder("staging/u0", "no/such")
        assert files.read("staging/u0/0") == b"data"

    def test_a_file_is_renamed_over_nothing(self, files: Files) -> None:
        staged, theirs = write(files, "staging/x", b"mine"), write(files, "target/x", b"theirs")
        self.expect_renames(files)
        with pytest.raises(FileExistsError):
            files.rename_new("staging/x", "target/x")
        files.make_folder("target/folder")
        with pytest.raises(FileExistsError):
            files.rename_new("staging/x", "target/folder")
        assert (files.identity("staging/x"), files.identity("target/x")) == (staged, theirs)
        files.rename_new("staging/x", "target/y")
        assert files.identity("target/y") == staged
        assert files.names(["staging/x", "target/y"]) == [0, 1]
        with pytest.raises(FileNotFoundError):
            files.rename_new("staging/x", "target/z")
        with pytest.raises(FileNotFoundError):
            files.rename_new("target/y", "none/y")
        assert sorted(files.walk(".")) == ["target/x", "target/y"]

    def test_a_folder_is_renamed_as_a_file_is(self, files: Files) -> None:
        staged = write(files, "staging/u0/x")
        files.make_folder("target/empty")
        self.expect_renames(files)
        with pytest.raises(FileExistsError):
            files.rename_new("staging/u0", "target/empty")
        files.rename_new("staging/u0", "target/u0")
        assert files.identities("target/u0") == {"x": staged}
        assert files.folders(".") == ("staging", "target")
        assert files.folders("staging") == ()

    def test_of_many_that_rename_a_file_one_does(self, files: Files) -> None:
        self.expect_renames(files)
        files.make_folder("own")
        for race in range(RACES):
            for racer in range(RACERS):
                write(files, f"staging/{race}/{racer}", b"%d" % racer)
            renamed: list[int] = []

            def rename(racer: int, race: int = race, renamed: list[int] = renamed) -> None:
                source = f"staging/{race}/{racer // 2}"  # each of two files, by two
                with suppress(FileExistsError, FileNotFoundError):
                    files.rename_new(source, f"own/{race}")
                    renamed.append(racer // 2)

            together(rename, RACERS)
            (winner,) = renamed
            assert files.read(f"own/{race}") == b"%d" % winner

    def expect_renames(self, files: Files) -> None:
        """Skip the rest where files can't be renamed without overwriting, as on NFS."""
        files.make_folder("own")
        if not files.renames_new("own"):
            pytest.skip("this storage can't rename without overwriting")
        files.remove_folder("own")

    def test_a_file_is_replaced_by_another_one_that_keeps_its_identity(self, files: Files) -> None:
        staged = write(files, "staging/x", b"mine")
        write(files, "target/x", b"theirs")
        files.replace("staging/x", "target/x")
        assert files.identity("target/x") == staged
        assert files.names(["staging/x", "target/x"]) == [0, 1]
        files.replace("target/x", "target/y")
        assert files.identities("target") == {"y": staged}
        with pytest.raises(FileNotFoundError):
            files.replace("staging/x", "target/y")
        with pytest.raises(FileNotFoundError):
            files.replace("target/y", "none/y")
        assert files.identities("target") == {"y": staged}

    def test_of_two_names_of_one_file_none_replaces_the_other(self, files: Files) -> None:
        """A rename of one to the other succeeds and does nothing, so a file that a rename is to consume has only one name."""
        if self.refuses_links(files):
            return
        write(files, "a/x")
        files.link("a/x", "a/y")
        files.replace("a/x", "a/y")
        assert sorted(files.walk(".")) == ["a/x", "a/y"]
        assert files.names(["a/x", "a/y"]) == [2, 2]

    def test_a_folder_has_attributes_and_a_file_has_none(self, files: Files) -> None:
        write(files, "a/b/x")
        before = files.folder("a/b")
        assert before is not None
        assert files.folder("a/b/x") is None
        assert files.folder("a/none") is None
        modified = 1_000_000_007 - 1_000_000_007 % files.keeps.time
        files.set_folder("a/b", Attributes(mode=0o700, modified=modified))
        assert files.folder("a/b") == replace(before, mode=0o700, modified=modified)
        files.set_folder("a/b", Attributes())
        assert files.folder("a/b") == replace(before, mode=0o700, modified=modified)
        with pytest.raises(OSError):  # noqa: PT011 - there is none, or it is no directory
            files.set_folder("a/b/x", Attributes(mode=0o700))

    def test_a_file_gets_attributes_only_if_it_is_the_expected_one(self, files: Files) -> None:
        identity = write(files, "a/x")
        files.set_file("a/x", identity, Attributes(mode=0o600))
        assert files.has("a/x", Attributes(mode=0o600))
        assert files.has("a/x", Attributes())
        assert not files.has("a/x", Attributes(mode=0o640))
        other = replace(identity, size=identity.size + 1)
        assert files.lacks("a/x", identity, Attributes(mode=0o640))
        assert not files.lacks("a/x", identity, Attributes(mode=0o600))
        assert not files.lacks("a/x", other, Attributes(mode=0o640))
        assert not files.lacks("a/none", identity, Attributes(mode=0o640))
        files.set_file("a/x", other, Attributes(mode=0o640))
        assert files.has("a/x", Attributes(mode=0o600))
        assert files.identity("a/x") == identity
        files.set_file("a/none", identity, Attributes(mode=0o640))
        assert not files.has("a/none", Attributes())

    def test_only_an_empty_folder_is_removed(self, files: Files) -> None:
        write(files, "a/b/c")
        for path in ("a", "a/b", "a/b/c", "none", "none/x"):
            files.remove_folder(path)
        assert [*files.walk(".")] == ["a/b/c"]
        files.unlink("a/b/c")
        files.remove_folder("a/b")
        assert files.folders("a") == ()

    def test_an_empty_folder_exists(self, files: Files) -> None:
        files.make_folder("a/empty")
        files.make_folder("a/empty")
        assert files.folders("a") == ("empty",)
        assert files.identity("a/empty") is not None
        assert [*files.walk("a")] == []

    def test_a_file_is_no_folder(self, files: Files) -> None:
        """An error, since a folder that can't be listed isn't empty."""
        write(files, "file")
        with pytest.raises(NotADirectoryError):
            [*files.walk("file")]
        with pytest.raises(OSError):  # noqa: PT011 - not a directory, or it exists
            files.make_folder("file/x")

    def test_a_missing_name_can_not_be_synced(self, files: Files) -> None:
        write(files, "a/b/c")
        with pytest.raises(FileNotFoundError):
            files.sync_folder("a/none")
        with pytest.raises(FileNotFoundError):
            files.sync_file("a/b/none")


class UploadsContract(FilesContract):
    """The suite of `Files` whose staged files are uploads. Override the fixture `files`."""

    def test_a_staged_file_is_an_upload_whose_identity_is_known(self, files: Files) -> None:
        uploads, staged = uploads_of(files), stage(files)
        assert staged.upload is not None
        assert staged.path == TARGET
        assert uploads.can_complete(TARGET, staged.upload)
        assert [*uploads.open_below(".")] == [*uploads.open_below("trips")] == [(TARGET, staged.upload.id)]
        assert [*uploads.open_below("other")] == []
        uploads.complete(TARGET, staged.upload)
        assert files.identity(TARGET) == FileIdentity(0, staged.size, staged.stamp)
        assert [*uploads.open_below(".")] == []

    def test_a_small_object_is_put_whole_and_over_no_other(self, files: Files) -> None:
        uploads_of(files).put(TARGET, b"rows")
        with pytest.raises(FileExistsError):
            uploads_of(files).put(TARGET, b"others")
        uploads_of(files).put("trips/ä ~%20+", b"")
        assert {path: files.read(path) for path in files.walk("trips")} == {TARGET: b"rows", "trips/ä ~%20+": b""}
        found = files.identity(TARGET)
        assert found is not None
        assert found.stamp == hashlib.md5(b"rows").hexdigest(), "unless the store encrypts with a key of its own"

    def test_an_upload_that_is_gone_is_never_completed(self, files: Files) -> None:
        uploads, staged = uploads_of(files), stage(files)
        assert staged.upload is not None
        uploads.abort(TARGET, staged.upload.id)
        uploads.abort(TARGET, staged.upload.id)
        assert not uploads.can_complete(TARGET, staged.upload)
        with pytest.raises(OSError):  # noqa: PT011 - a FileNotFoundError, where the store knows it
            uploads.complete(TARGET, staged.upload)
        assert files.identity(TARGET) is None

    def test_an_upload_with_other_parts_is_not_the_one(self, files: Files) -> None:
        uploads, staged = uploads_of(files), stage(files)
        assert staged.upload is not None
        assert not uploads.can_complete(TARGET, replace(staged.upload, etags=(*staged.upload.etags, "0" * 32)))

    def test_to_abort_a_completed_upload_leaves_its_object(self, files: Files) -> None:
        uploads, staged = uploads_of(files), stage(files)
        assert staged.upload is not None
        uploads.complete(TARGET, staged.upload)
        uploads.abort(TARGET, staged.upload.id)
        assert files.read(TARGET) == b"rows"

    def test_an_upload_replaces_the_object_that_is_expected(self, files: Files) -> None:
        uploads = uploads_of(files)
        old = write(files, TARGET, b"old")
        staged = stage(files, b"new")
        assert staged.upload is not None
        uploads.replace(TARGET, staged.upload, old.stamp)
        assert files.read(TARGET) == b"new"
        assert files.identity(TARGET) == FileIdentity(0, staged.size, staged.stamp)
        with suppress(OSError):  # where a store forgets at once what it completed
            uploads.replace(TARGET, staged.upload, old.stamp)
        assert files.read(TARGET) == b"new"

    def test_an_upload_replaces_no_other_object(self, files: Files) -> None:
        uploads = uploads_of(files)
        old = write(files, "trips/other", b"old")
        staged = stage(files, b"new")
        assert staged.upload is not None
        write(files, TARGET, b"theirs")
        with pytest.raises(FileExistsError):
            uploads.replace(TARGET, staged.upload, old.stamp)
        assert files.read(TARGET) == b"theirs"

    def test_the_object_that_is_expected_is_removed(self, files: Files) -> None:
        uploads, found = uploads_of(files), write(files, TARGET)
        uploads.remove(TARGET, found.stamp)
        uploads.remove(TARGET, found.stamp)
        assert files.identity(TARGET) is None

    def test_uploads_in_a_cached_listing_are_the_same(self, files: Files) -> None:
        staged = [stage(files, target=f"trips/{number}.txt") for number in range(3)]
        gone = staged.pop()
        assert gone.upload is not None
        uploads_of(files).abort(gone.path, gone.upload.id)
        cached = uploads_of(with_listing_cache(files, "trips"))
        assert all(file.upload is not None and cached.can_complete(file.path, file.upload) for file in staged)
        assert not cached.can_complete(gone.path, gone.upload)

    def test_a_link_is_refused_since_nothing_would_keep_it_from_overwriting(self, files: Files) -> None:
        write(files, "a", b"1")
        with pytest.raises(OSError):  # noqa: PT011 - not supported
            files.link("a", "b")
        assert [*files.walk(".")] == ["a"]
