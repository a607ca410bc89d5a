"""OpenPGP on the way, by the real GnuPG: keys from connections, and nothing published before it reports that all is well."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from airflow_gobblin.connections import GuardedConnections
from airflow_gobblin.copy.conversion import gpg
from airflow_gobblin.copy.conversion.archives import Unpack
from airflow_gobblin.copy.conversion.converters import ConnectedConverter, Gunzip
from airflow_gobblin.copy.conversion.openpgp import CheckDetachedSignature, CheckSignature, Decrypt, Encrypt
from airflow_gobblin.copy.finders import EachFolder
from airflow_gobblin.copy.options import Compare
from airflow_gobblin.copy.planning import find_file_sets, plan_copy
from airflow_gobblin.copy.verifying import verify_copy
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.job import WorkRequest
from airflow_gobblin.mirror import Mirror
from airflow_gobblin.storage.files import LocalFiles
from airflow_gobblin.testing import inprocess
from tests.copy.hostile_archives import GOOD
from tests.copy.mirrors import Trees, content, statuses

pytestmark = pytest.mark.slow

SECRET = "a passphrase with ümlauts, 'quotes' and $igns"
TEXT = os.urandom(400_000)
A, B = "a#files", "b#files"


@dataclass
class Person:
    """Somebody with a home of GnuPG and a key."""

    home: Path
    passphrase: str = SECRET
    fingerprint: str = ""

    def gpg(self, *arguments: str, data: bytes = b"") -> bytes:
        command = [
            "gpg",
            f"--homedir={self.home}",
            "--batch",
            "--quiet",
            "--trust-model=always",
            "--pinentry-mode=loopback",
        ]
        done = subprocess.run(
            [*command, f"--passphrase={self.passphrase}", *arguments], input=data, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @classmethod
    def made(cls, home: Path, name: str, passphrase: str = SECRET) -> Person:
        home.mkdir(mode=0o700)
        (home / "gpg-agent.conf").write_text("s2k-count 65536\n")  # a key that costs little
        one = cls(home, passphrase)
        one.gpg("--quick-generate-key", f"{name} <{name}@example.org>", "future-default", "default", "never")
        listed = one.gpg("--list-keys", "--with-colons").decode()
        one.fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))
        return one

    @property
    def public(self) -> str:
        return self.gpg("--armor", "--export", self.fingerprint).decode()

    @property
    def private(self) -> str:
        return self.gpg("--armor", "--export-secret-keys", self.fingerprint).decode()

    def knows(self, *others: Person) -> None:
        for other in others:
            self.gpg("--import", data=other.public.encode())

    def encrypted(self, data: bytes, to: Person, *, sign: bool = False) -> bytes:
        signing = [f"--local-user={self.fingerprint}", "--sign"] if sign else []
        return self.gpg(f"--recipient={to.fingerprint}", *signing, "--encrypt", data=data)

    def signed(self, data: bytes) -> bytes:
        return self.gpg(f"--local-user={self.fingerprint}", "--sign", data=data)


@dataclass
class People:
    """Ann receives, Bo sends, and nobody knows Eve."""

    ann: Person
    bo: Person
    eve: Person


@pytest.fixture(scope="module")
def people() -> Iterator[People]:
    with tempfile.TemporaryDirectory(prefix="gpg", dir="/tmp") as folder:
        made = [Person.made(Path(folder, name), name) for name in ("ann", "bo", "eve")]
        for one in made:
            one.knows(*made)
        yield People(*made)
        for one in made:
            subprocess.run(["gpgconf", f"--homedir={one.home}", "--kill", "all"], check=True)


@dataclass
class Keys:
    """Connections with keys."""

    keys: dict[str, str]
    passphrase: str = SECRET
    asked: list[str] = field(default_factory=list)

    def uri(self, conn_id: str) -> str:
        self.asked.append(conn_id)
        return f"generic://:{quote(self.passphrase, safe='')}@/?keys={quote(self.keys[conn_id], safe='')}"


@pytest.fixture(scope="module")
def material(people: People) -> dict[str, str]:
    """The keys of each connection."""
    ann, bo = people.ann, people.bo
    return {"ann": ann.private + bo.public, "ann_alone": ann.private, "bo": bo.private + ann.public}


@pytest.fixture
def keys(material: dict[str, str]) -> Keys:
    return Keys(dict(material))


def converted(converter: ConnectedConverter, keys: Keys, data: bytes) -> bytes:
    opened = converter.connected(keys)
    assert isinstance(opened, gpg.Gpg)
    try:
        return b"".join(opened.convert(iter([data[at : at + 65536] for at in range(0, len(data), 65536)])))
    finally:
        opened.close()


def refusal(converter: ConnectedConverter, keys: Keys, data: bytes) -> str:
    with pytest.raises(gpg.OpenPgpError) as refused:
        converted(converter, keys, data)
    return str(refused.value)


# Messages


@pytest.mark.parametrize(("data", "sign"), [(b"", True), (TEXT, False), (TEXT, True)], ids=["empty", "plain", "signed"])
def test_what_somebody_encrypted_is_decrypted(people: People, keys: Keys, data: bytes, sign: bool) -> None:
    message = people.bo.encrypted(data, people.ann, sign=sign)
    assert converted(Decrypt("ann"), keys, message) == data
    assert converted(Decrypt("ann_alone"), keys, message) == data, "signatures aren't looked at"
    if sign:
        assert converted(Decrypt("ann", (people.bo.fingerprint,)), keys, message) == data


@pytest.mark.parametrize("data", [b"", TEXT], ids=len)
def test_what_we_encrypt_somebody_decrypts(people: People, keys: Keys, data: bytes) -> None:
    message = converted(Encrypt("bo", (people.ann.fingerprint,), people.bo.fingerprint), keys, data)
    assert people.ann.gpg("--decrypt", data=message) == data
    assert converted(Decrypt("ann", (people.bo.fingerprint,)), keys, message) == data
    unsigned = converted(Encrypt("bo", (people.ann.fingerprint,)), keys, data)
    assert refusal(Decrypt("ann", (people.bo.fingerprint,)), keys, unsigned) == "it isn't signed"


@pytest.mark.parametrize("data", [b"", TEXT], ids=len)
def test_a_signed_message_is_checked_and_its_content_taken_out(people: People, keys: Keys, data: bytes) -> None:
    check = CheckSignature("ann", (people.bo.fingerprint.lower(),))
    assert converted(check, keys, people.bo.signed(data)) == data


def flipped(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


BAD: dict[str, tuple[Callable[[People], bytes], Callable[[People], ConnectedConverter], str]] = {
    "to another key": (
        lambda p: p.bo.encrypted(b"x", p.eve),
        lambda p: Decrypt("ann"),
        "the connection has no private key for it, or another passphrase",
    ),
    "tampered with": (lambda p: flipped(p.bo.encrypted(TEXT, p.ann)), lambda p: Decrypt("ann"), ""),
    "cut off": (lambda p: p.bo.encrypted(TEXT, p.ann)[:-100], lambda p: Decrypt("ann"), ""),
    "cut off in the middle": (lambda p: p.bo.encrypted(TEXT, p.ann)[:150_000], lambda p: Decrypt("ann"), ""),
    "garbage": (lambda p: TEXT[:1000], lambda p: Decrypt("ann"), ""),
    "text": (lambda p: b"no message at all", lambda p: Decrypt("ann"), "it is not an OpenPGP message"),
    "empty": (lambda p: b"", lambda p: Decrypt("ann"), ""),
    "signed and not encrypted": (lambda p: p.bo.signed(b"x"), lambda p: Decrypt("ann"), "it isn't encrypted"),
    "encrypted and not signed": (
        lambda p: p.bo.encrypted(b"x", p.ann),
        lambda p: Decrypt("ann", (p.bo.fingerprint,)),
        "it isn't signed",
    ),
    "encrypted and signed by another": (
        lambda p: p.ann.encrypted(b"x", p.ann, sign=True),
        lambda p: Decrypt("ann", (p.bo.fingerprint,)),
        "which is none of signed_by",
    ),
    "encrypted and signed by nobody known": (
        lambda p: p.eve.encrypted(b"x", p.ann, sign=True),
        lambda p: Decrypt("ann", (p.bo.fingerprint,)),
        "signed by a key that the connection doesn't have",
    ),
    "signed by another": (
        lambda p: p.ann.signed(b"x"),
        lambda p: CheckSignature("ann", (p.bo.fingerprint,)),
        "which is none of signed_by",
    ),
    "signed by nobody known": (
        lambda p: p.eve.signed(b"x"),
        lambda p: CheckSignature("ann", (p.eve.fingerprint,)),
        "signed by a key that the connection doesn't have",
    ),
    "signed, and tampered with": (
        lambda p: p.bo.gpg(f"--local-user={p.bo.fingerprint}", "-z0", "--sign", data=TEXT).replace(
            TEXT[-9:-1], b"TAMPERED"
        ),
        lambda p: CheckSignature("ann", (p.bo.fingerprint,)),
        "its signature is wrong",
    ),
    "not signed": (
        lambda p: p.bo.gpg("--store", data=b"x"),
        lambda p: CheckSignature("ann", (p.bo.fingerprint,)),
        "it isn't signed",
    ),
    "something unsigned before what is signed": (
        lambda p: p.bo.gpg("--store", data=b"y") + p.bo.signed(b"x"),
        lambda p: CheckSignature("ann", (p.bo.fingerprint,)),
        "",
    ),
    "no recipient's key": (
        lambda p: b"x",
        lambda p: Encrypt("ann_alone", (p.bo.fingerprint,)),
        "no usable key of a recipient",
    ),
    "no key to sign with": (
        lambda p: b"x",
        lambda p: Encrypt("ann", (p.ann.fingerprint,), p.bo.fingerprint),
        "no usable key to sign with",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_message_is_refused(people: People, keys: Keys, kind: str) -> None:
    data, converter, why = BAD[kind]
    assert why in refusal(converter(people), keys, data(people))


@pytest.mark.parametrize("passphrase", ["another", ""])
def test_a_wrong_passphrase_is_reported(people: People, keys: Keys, passphrase: str) -> None:
    keys.passphrase = passphrase
    assert "another passphrase" in refusal(Decrypt("ann"), keys, people.bo.encrypted(b"x", people.ann))


def test_only_what_was_signed_comes_out(people: People, keys: Keys) -> None:
    """GnuPG ends a message by itself, and leaves out what is behind it."""
    signed, check = people.bo.signed(b"x"), CheckSignature("ann", (people.bo.fingerprint,))
    for behind in (people.eve.signed(b"y"), people.bo.gpg("--store", data=b"y"), b"y"):
        assert converted(check, keys, signed + behind) == b"x"


def test_wherever_a_message_is_changed_it_is_refused(people: People, keys: Keys) -> None:
    message = people.bo.encrypted(TEXT[:3000], people.ann)
    opened = Decrypt("ann").connected(keys)
    for at in range(0, len(message), len(message) // 8):
        changed = message[:at] + bytes([message[at] ^ 0x40]) + message[at + 1 :]
        with pytest.raises(gpg.OpenPgpError):
            b"".join(opened.convert(iter([changed])))


# Secrets


def test_no_secret_is_on_a_command_line_or_in_an_environment_and_the_home_is_private(
    people: People, keys: Keys
) -> None:
    message = people.bo.encrypted(TEXT, people.ann)
    seen: list[str] = []
    homes: set[Path] = set()

    def blocks() -> Iterator[bytes]:
        yield message[:50_000]
        for process in awaited_children():
            shown = [Path(process, name).read_bytes().decode(errors="replace") for name in ("cmdline", "environ")]
            seen.extend(shown)
            homes.update(Path(word.partition("=")[2]) for word in shown[0].split("\0") if word.startswith("--homedir="))
        for home in homes:
            assert home.stat().st_mode & 0o777 == 0o700
        yield message[50_000:]

    opened = Decrypt("ann").connected(keys)
    assert b"".join(opened.convert(blocks())) == TEXT
    assert len(homes) == 1
    assert len(seen) >= 2
    private = people.ann.private.splitlines()[5]
    assert [
        text
        for text in seen
        if SECRET in text or private in text or "PASS" in text.upper().replace("PASSPHRASE-FD", "")
    ] == []
    del opened
    assert gone(*homes)


def home_of(converter: Decrypt, keys: Keys, message: bytes) -> tuple[gpg.Gpg, Path]:
    """A converter that has tried a message, and its home."""
    opened = converter.connected(keys)
    assert isinstance(opened, gpg.Gpg)
    with suppress(gpg.OpenPgpError):
        b"".join(opened.convert(iter([message])))
    return opened, Path(opened._home.path)


def test_a_key_is_derived_shortly_in_memory(people: People, keys: Keys) -> None:
    opened, home = home_of(Decrypt("ann"), keys, people.bo.encrypted(b"x", people.ann))
    used = b"".join(b"".join(key.read_bytes().split()) for key in home.glob("private-keys-v1.d/*.key"))
    opened.close()
    # The salt is written as text where most of its bytes happen to be letters.
    assert re.findall(rb'openpgp-s2k3-ocb-aes\(\(sha1.+?"(\d+)"\)', used, re.DOTALL) == [b"65536"]


def test_a_key_on_a_disk_is_kept_as_gnupg_would(people: People, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpg, "_MEMORY", "/nonexistent")
    monkeypatch.setattr(tempfile, "tempdir", str(people.ann.home.parent))
    opened, home = home_of(Decrypt("ann"), keys, b"no message")
    assert (home.parent, (home / "gpg-agent.conf").exists()) == (people.ann.home.parent, False)
    opened.close()


def children() -> list[Path]:
    """The processes of GnuPG that this process started."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue
        if f"\nPPid:\t{os.getpid()}\n" in text and "Name:\tgpg\n" in text:
            found.append(status.parent)
    return found


def awaited_children() -> list[Path]:
    """Those processes, soon after the first was started: it gets its name and its command line a moment later."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        found = children()
        if any(b"--homedir=" in Path(process, "cmdline").read_bytes() for process in found):
            return found
        time.sleep(0.005)
    return []


def gone(*homes: Path) -> bool:
    """Whether homes are removed, and no process has one any more, soon."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        agents = [p for p in Path("/proc").glob("[0-9]*/cmdline") if any(str(h) in read(p) for h in homes)]
        if not agents and not any(home.exists() for home in homes):
            return True
        time.sleep(0.05)
    return False


def read(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


# Mirrors


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    return Trees(tmp_path)


def run(trees: Trees, keys: Any, **options: Any) -> dict[str, Any]:
    mirror = Mirror("photos", str(trees.source), str(trees.target), "unused", EachFolder(), **options)
    return dict(inprocess.run(inprocess.open_job(mirror, keys)))


def files(folder: Path) -> dict[str, bytes | str]:
    return {path: data for path, data in content(folder).items() if data != "/"}


def test_a_mirror_decrypts_what_is_well_and_leaves_the_rest_unpublished(
    people: People, keys: Keys, trees: Trees, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes = tempfile.mkdtemp(prefix="homes-", dir=gpg._MEMORY if os.path.isdir(gpg._MEMORY) else "/tmp")
    monkeypatch.setattr(gpg, "_MEMORY", homes)
    good = people.bo.encrypted(b"the content", people.ann, sign=True)
    for path in ("a/one.gpg", "b/one.gpg", "b/two.gpg"):
        trees.write(path).write_bytes(good)
    trees.write("b/two.gpg").write_bytes(people.bo.encrypted(b"unsigned", people.ann))
    trees.write("c/one.gpg").write_bytes(people.bo.encrypted(b"to another key", people.eve, sign=True))
    reports = run(trees, keys, convert=(Decrypt("ann", (people.bo.fingerprint,)),))
    assert statuses(reports) == {A: "committed", B: "failed", "c#files": "failed"}
    assert "c/one.gpg': OpenPgpError: the connection has no private key for it" in reports["c#files"].text
    assert f"can't convert file '{trees.source}/b/two.gpg': OpenPgpError: it isn't signed" in reports[B].text
    assert files(trees.target) == {"a/one": b"the content"}
    os.rmdir(homes)  # it is empty
    known = [path.read_bytes() for path in trees.folder.rglob("*") if path.is_file()]
    assert not [data for data in known if SECRET.encode() in data or b"PRIVATE KEY" in data]
    assert SECRET not in caplog.text
    assert SECRET not in str(reports)


def test_a_mirror_encrypts_and_another_one_decrypts(people: People, keys: Keys, trees: Trees) -> None:
    trees.write("a/one")
    (trees.folder / "back").mkdir()
    encrypt = {"convert": (Encrypt("bo", (people.ann.fingerprint,), people.bo.fingerprint),)}
    assert statuses(run(trees, keys, **encrypt)) == {A: "committed"}
    assert people.ann.gpg("--decrypt", data=(trees.target / "a/one.gpg").read_bytes()) == b"a/one"
    assert statuses(run(trees, keys, **encrypt)) == {A: "idle"}
    back = Mirror(
        "back",
        str(trees.target),
        str(trees.folder / "back"),
        "unused",
        convert=(Decrypt("ann", (people.bo.fingerprint,)),),
    )
    assert statuses(dict(inprocess.run(inprocess.open_job(back, keys)))) == {"back#files": "committed"}
    assert files(trees.folder / "back") == {"a/one": b"a/one"}


def test_what_is_encrypted_is_compared_by_time(people: People, keys: Keys, trees: Trees) -> None:
    trees.write("a/one")
    encrypt = (Encrypt("bo", (people.ann.fingerprint,)),)
    assert statuses(run(trees, keys, convert=encrypt)) == {A: "committed"}
    work = Mirror("photos", str(trees.source), str(trees.target), "unused", EachFolder(), convert=encrypt).work
    target, connections = LocalFiles(trees.target), GuardedConnections(keys)
    (found,) = find_file_sets(work, connections)
    assert [*verify_copy(work, found, target, connections, content=True)] == []
    os.utime(trees.target / "a/one.gpg", (1, 1))
    (differing,) = verify_copy(work, found, target, connections, content=True)
    assert (differing.path, differing.detail) == ("a/one.gpg", "its time is not the source's")
    own = replace(found, compare=Compare.CHECKSUM)
    with pytest.raises(ConfigurationError, match="compared by contents, and an encryption has other bytes each time"):
        plan_copy(work.of(own), own, {}, WorkRequest(datetime.now(UTC)), target, connections)


def test_a_message_that_becomes_too_much_is_refused(people: People, keys: Keys, trees: Trees) -> None:
    trees.write("a/one.gpg").write_bytes(people.bo.encrypted(bytes(20 << 20), people.ann))
    report = run(trees, keys, convert=(Decrypt("ann"),))[A]
    assert (report.status.value, f"file '{trees.source}/a/one.gpg'" in report.text) == ("failed", True)
    assert "its content has more than most_ratio=200 times" in report.text
    assert files(trees.target) == {}


# Signatures in files of their own


def detached(person: Person, data: bytes, *, armor: bool = False) -> bytes:
    return person.gpg(
        *(("--armor",) if armor else ()), f"--local-user={person.fingerprint}", "--detach-sign", data=data
    )


def test_a_file_set_is_published_whose_files_have_good_signatures_beside_them(
    people: People, keys: Keys, trees: Trees
) -> None:
    trees.write("a/one").write_bytes(TEXT)
    trees.write("a/one.sig").write_bytes(detached(people.bo, TEXT))
    trees.write("a/deep/two").write_bytes(b"")
    trees.write("a/deep/two.asc").write_bytes(detached(people.bo, b"", armor=True))
    check = {"convert": (CheckDetachedSignature("ann", (people.bo.fingerprint,)),), "exclude": ("*.asc",)}
    assert statuses(run(trees, keys, **check)) == {A: "committed"}
    signature = (trees.source / "a/one.sig").read_bytes()
    assert files(trees.target) == {"a/one": TEXT, "a/one.sig": signature, "a/deep/two": b""}
    assert statuses(run(trees, keys, **check)) == {A: "idle"}


BESIDE: dict[str, tuple[Callable[[People], bytes | None], str]] = {
    "nothing": (lambda p: None, "there is no 'one.sig' or 'one.asc' in its file set"),
    "nothing of OpenPGP": (lambda p: b"garbage", "not a detached OpenPGP signature"),
    "an empty file": (lambda p: b"", "not a detached OpenPGP signature"),
    "a signed message": (lambda p: p.bo.signed(b"x"), "not a detached OpenPGP signature"),
    "of another file": (lambda p: detached(p.bo, TEXT + b"x"), "its signature is wrong"),
    "by another": (lambda p: detached(p.ann, TEXT), "which is none of signed_by"),
    "by nobody known": (lambda p: detached(p.eve, TEXT), "signed by a key that the connection doesn't have"),
    "cut off": (lambda p: detached(p.bo, TEXT)[:-20], ""),
    "one and another one, which is wrong": (
        lambda p: detached(p.bo, TEXT) + detached(p.bo, b"x"),
        "its signature is wrong",
    ),
    "too large": (lambda p: bytes(40_000), "'one.sig' has more than 32,768 bytes"),
}


@pytest.mark.parametrize("kind", BESIDE)
def test_a_file_set_is_not_published_with(people: People, keys: Keys, trees: Trees, kind: str) -> None:
    make, why = BESIDE[kind]
    trees.write("a/one").write_bytes(TEXT)
    signature = make(people)
    if signature is not None:
        trees.write("a/one.sig").write_bytes(signature)
    report = run(trees, keys, convert=(CheckDetachedSignature("ann", (people.bo.fingerprint,)),))[A]
    assert (report.status.value, f"can't convert file '{trees.source}/a/one'" in report.text) == ("failed", True)
    assert why in report.text
    assert files(trees.target) == {}


def test_only_some_files_need_a_signature_and_of_what_they_are_by_then(
    people: People, keys: Keys, trees: Trees
) -> None:
    trees.write("a/one.bin.gz").write_bytes(gzip.compress(TEXT))
    trees.write("a/one.bin.sig").write_bytes(detached(people.bo, TEXT))
    trees.write("a/other")
    check = CheckDetachedSignature("ann", (people.bo.fingerprint,), takes=".bin", companions=(".sig",))
    assert statuses(run(trees, keys, convert=(Gunzip(), check))) == {A: "committed"}
    assert files(trees.target).keys() == {"a/one.bin", "a/one.bin.sig", "a/other"}
    assert (trees.target / "a/one.bin").read_bytes() == TEXT


def test_an_encrypted_archive_is_unpacked(people: People, keys: Keys, trees: Trees) -> None:
    trees.write("a/x.tar.gpg").write_bytes(people.bo.encrypted(GOOD, people.ann))
    trees.write("b/x.tar.gpg").write_bytes(flipped(people.bo.encrypted(GOOD, people.ann)))
    reports = run(trees, keys, convert=(Decrypt("ann"), Gunzip()), unpack=Unpack())
    assert statuses(reports) == {A: "committed", B: "failed"}
    assert files(trees.target) == {"a/x/a": b"some content", "a/x/b": b"more"}


@pytest.mark.parametrize(
    ("given", "why"),
    [("", "it has no keys"), ("no key at all", "gpg doesn't accept them")],
)
def test_a_connection_without_keys_is_named(keys: Keys, trees: Trees, people: People, given: str, why: str) -> None:
    keys.keys["ann"] = given
    trees.write("a/one.gpg").write_bytes(people.bo.encrypted(b"x", people.ann))
    report = run(trees, keys, convert=(Decrypt("ann"),))[A]
    assert (report.status.value, "connection 'ann'" in report.text) == ("failed", True)
    assert why in report.text


def test_without_gpg_it_is_named(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ConfigurationError, match="can't start gpg: it isn't installed"):
        converted(Decrypt("ann"), keys, b"x")


def test_spark_is_given_the_connections_of_keys() -> None:
    mirror = Mirror("m", "s3://store@bucket/x", "/b", "unused", convert=(Decrypt("ann"), Encrypt("bo", ("0" * 40,))))
    assert mirror.work.connection_ids == ("store", "ann", "bo")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Encrypt("bo", ()),
        lambda: Encrypt("bo", ("ann@example.org",)),
        lambda: Encrypt("bo", ("0123456789ABCDEF",)),
        lambda: Encrypt("bo", ("0" * 40,), "bo"),
        lambda: CheckSignature("ann", ()),
        lambda: CheckDetachedSignature("ann", ()),
        lambda: CheckDetachedSignature("ann", ("0" * 40,), companions=()),
        lambda: CheckDetachedSignature("ann", ("0" * 40,), companions=("",)),
        lambda: Decrypt("ann", "0" * 40),  # type: ignore[arg-type]
        lambda: Mirror("m", "/a", "/b", "unused", compare="checksum", convert=(Encrypt("bo", ("0" * 40,)),)),  # type: ignore[arg-type]
    ],
)
def test_what_would_be_no_protection_is_refused(make: Any) -> None:
    with pytest.raises(ConfigurationError):
        make()
