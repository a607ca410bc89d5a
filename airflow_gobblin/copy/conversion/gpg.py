"""GnuPG as a process: each converter has a home of its own, which only this user can look into, and which goes with the object.

Keys and the passphrase reach it through pipes: neither is on a command line, in the environment or in a file outside that home.
Its status decides, and only after its end; until then, everything that it wrote is merely staged.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import IO, TYPE_CHECKING, Protocol

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.storage.parsed_connection import ParsedConnection

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections
    from airflow_gobblin.copy.conversion.converters import FileConverter

_BLOCK = 1 << 20
_MEMORY = "/dev/shm"
"""Where homes are, if it exists: private keys touch no disk, and the names of sockets are short enough."""
_AGENT = "s2k-count 65536\n"
"""The agent's option that lets a home in memory protect its keys by a short derivation from the passphrase. The usual one is long
by design, for keys at rest: it takes seconds for a home, and tenths of a second for a file."""
_OPTIONS = (
    "--no-options",
    "--batch",
    "--no-tty",
    "--quiet",
    "--disable-dirmngr",
    "--no-auto-key-locate",
    "--no-auto-check-trustdb",
    "--trust-model=always",
    "--pinentry-mode=loopback",
)
_MOST_STATUS = 10_000
"""How many lines of status are kept: a message with more is none of ours."""
_NO_KEY = "the connection has no private key for it, or another passphrase"
_WHY = {
    "BAD_PASSPHRASE": "the passphrase is wrong",
    "MISSING_PASSPHRASE": "the key needs a passphrase, and the connection has none",
    "NO_SECKEY": _NO_KEY,
    "NODATA": "it is not an OpenPGP message",
    "BADMDC": "it was tampered with",
    "BADSIG": "its signature is wrong: it was tampered with",
    "NO_PUBKEY": "it is signed by a key that the connection doesn't have",
    "EXPSIG": "its signature has expired",
    "EXPKEYSIG": "the key of its signature has expired",
    "REVKEYSIG": "the key of its signature was revoked",
    "INV_RECP": "the connection has no usable key of a recipient",
    "INV_SGNR": "the connection has no usable key to sign with",
    "DECRYPTION_FAILED": "it can't be decrypted: it was tampered with, or is damaged",
}
"""The meaning of each status, the most specific first."""


class OpenPgpError(Exception):
    """GnuPG doesn't accept a message, or can't make one; the text gives the reason."""


class _Home:
    """A home with the keys of a connection, made on first use, and removed with this object."""

    def __init__(self, keys: str, conn_id: str) -> None:
        self._keys = keys
        self._conn_id = conn_id
        self._lock = Lock()
        self._path = ""
        self._remove: weakref.finalize[..., _Home] | None = None

    @property
    def path(self) -> str:
        """Its path.

        :raises ConfigurationError: GnuPG isn't installed, or takes no key from the connection.
        """
        with self._lock:
            if not self._path:
                self._path = self._made()
            return self._path

    def _made(self) -> str:
        if shutil.which("gpg") is None:
            raise ConfigurationError(
                operation="start",
                subject="gpg",
                cause="it isn't installed",
                hint="Install GnuPG, such as Debian's gnupg, where Airflow plans and where Spark's tasks run.",
            )
        in_memory = os.path.isdir(_MEMORY)
        path = tempfile.mkdtemp(prefix="gpg-", dir=_MEMORY if in_memory else None)
        self._remove = weakref.finalize(self, _remove_home, path)
        if in_memory:
            with open(f"{path}/gpg-agent.conf", "w", encoding="ascii") as file:
                file.write(_AGENT)
        done = subprocess.run(
            [*_command(path), "--import"],
            input=self._keys.encode(),
            capture_output=True,
            env=_environment(),
            check=False,
        )
        if done.returncode != 0:
            raise ConfigurationError(
                operation="use",
                subject=f"the keys of connection {self._conn_id!r}",
                cause="gpg doesn't accept them",
                hint="Put armored keys into its extra `keys`, one after another, as `gpg --armor --export` writes them.",
            )
        return path

    def close(self) -> None:
        """Remove it."""
        with self._lock:
            if self._remove is not None:
                self._remove()
            self._path = ""


def _remove_home(path: str) -> None:
    with suppress(OSError):
        subprocess.run(
            ["gpgconf", f"--homedir={path}", "--kill", "all"], capture_output=True, env=_environment(), check=False
        )
    shutil.rmtree(path, ignore_errors=True)


def _command(home: str) -> list[str]:
    return ["gpg", f"--homedir={home}", *_OPTIONS]


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}


@dataclass
class _Status:
    """The status that GnuPG reports for a message, by keyword.

    :param signers: the fingerprints of the keys of good signatures, and of their primary keys.
    """

    words: dict[str, int] = field(default_factory=dict)
    signers: list[set[str]] = field(default_factory=list)

    def read(self, lines: IO[bytes]) -> None:
        """Read lines to their end."""
        for number, line in enumerate(lines):
            word, *arguments = line.decode(errors="replace").removeprefix("[GNUPG:] ").split()[:12] or [""]
            self.words[word] = self.words.get(word, 0) + 1
            if word == "VALIDSIG" and arguments and number < _MOST_STATUS:
                self.signers.append({arguments[0], arguments[-1]})

    def why(self) -> str:
        """Return why a message isn't accepted, as far as GnuPG reports it."""
        if "DECRYPTION_FAILED" in self.words and "DECRYPTION_KEY" not in self.words:
            return _NO_KEY  # GnuPG doesn't report which
        return next((why for word, why in _WHY.items() if word in self.words), "")


class KeyedConverter(Protocol):
    """The record of a converter with keys."""

    @property
    def keys(self) -> str:
        """The connection with its keys."""

    @property
    def takes(self) -> str:
        """The extension of the files that it takes."""

    @property
    def gives(self) -> str:
        """The extension that it gives them."""


class Gpg:
    """A converter by GnuPG, with its keys. A `FileConverter`.

    :param takes: as those of the record that it represents.
    """

    def __init__(self, takes: str, gives: str, passphrase: str, home: _Home) -> None:
        self.takes = takes
        self.gives = gives
        self._passphrase = passphrase
        self._home = home
        self._arguments: tuple[str, ...] = ()
        self._needed: tuple[str, ...] = ()
        self._signed_by: frozenset[str] = frozenset()

    @classmethod
    def of(cls, converter: KeyedConverter, connections: Connections) -> Gpg:
        """Return the converter of a record.

        :raises ConfigurationError: there is no such connection, or it has no keys.
        """
        connection = ParsedConnection(converter.keys, connections.uri(converter.keys))
        keys = connection.extra.get("keys")
        if not isinstance(keys, str) or not keys.strip():
            raise connection.unfit("it has no keys", "Put armored keys of OpenPGP into its extra `keys`.")
        return cls(converter.takes, converter.gives, connection.password, _Home(keys, converter.keys))

    def decrypting(self, signed_by: Sequence[str]) -> Gpg:
        """Let it decrypt messages and, if any keys are given, make sure that one of them signed each message."""
        self._arguments = ("--decrypt",) if signed_by else ("--skip-verify", "--decrypt")
        self._needed, self._signed_by = ("DECRYPTION_OKAY",), frozenset(signed_by)
        return self

    def checking(self, signed_by: Sequence[str]) -> Gpg:
        """Let it take the content out of messages that one of these keys signed, or check their signatures `beside` files."""
        self._arguments, self._signed_by = ("--decrypt",), frozenset(signed_by)
        return self

    def encrypting(self, to: Sequence[str], sign_by: str) -> Gpg:
        """Let it encrypt files to some keys, and sign them with another one, if it is given."""
        recipients = tuple(f"--recipient={one}" for one in to)
        signer = (f"--local-user={sign_by}", "--sign") if sign_by else ()
        self._arguments = (*recipients, *signer, "--encrypt")
        self._needed = ("END_ENCRYPTION", "SIG_CREATED") if sign_by else ("END_ENCRYPTION",)
        return self

    def convert(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield what GnuPG makes of a message.

        :raises OpenPgpError: at the end: it must not be used.
        """
        status = _Status()
        with _Running([*_command(self._home.path), *self._arguments], self._passphrase, blocks, status) as running:
            while block := running.output.read(_BLOCK):
                yield block
            code = running.ended()
        self._judge(code, status)

    def beside(self, signature: bytes) -> FileConverter:
        """Return a converter that checks a detached signature, and lets its file through."""
        return _Detached(self, signature)

    def checked(self, blocks: Iterator[bytes], signature: bytes) -> Iterator[bytes]:
        """Yield the blocks of a file with a detached signature.

        :raises OpenPgpError: at the end: they must not be used.
        """
        status, command = _Status(), _command(self._home.path)
        given = _pipe_with(signature)
        verify = ("--enable-special-filenames", "--verify", "--", f"-&{given}", "-")
        with _Running([*command, *verify], self._passphrase, None, status, (given,)) as running:
            for block in blocks:
                running.feed(block)
                yield block
            code = running.ended()
        if not status.words.keys() & {"NEWSIG", "ERRSIG"}:
            raise OpenPgpError("the file beside it is not a detached OpenPGP signature")
        self._judge(code, status)

    def _judge(self, code: int, status: _Status) -> None:
        missing = next((word for word in self._needed if word not in status.words), "")
        if missing == "DECRYPTION_OKAY" and code == 0:
            raise OpenPgpError("it isn't encrypted")
        if "BADSIG" in status.words:
            raise OpenPgpError(_WHY["BADSIG"])
        if status.words.get("PLAINTEXT", 0) > 1:
            raise OpenPgpError("it is more than one message")
        if self._signed_by and code == 0 and not status.signers:
            raise OpenPgpError("it isn't signed")
        if code != 0 or missing:
            raise OpenPgpError(status.why() or f"gpg ended with {code}, as it was damaged, or cut off")
        if self._signed_by and not any(signer & self._signed_by for signer in status.signers):
            found = ", ".join(sorted(set.union(*status.signers)))
            raise OpenPgpError(f"it is signed by {found}, which is none of signed_by")

    def close(self) -> None:
        """Remove the keys."""
        self._home.close()


@dataclass(frozen=True)
class _Detached:
    """The check of one file's detached signature. A `FileConverter`."""

    gpg: Gpg
    signature: bytes

    @property
    def takes(self) -> str:
        return self.gpg.takes

    @property
    def gives(self) -> str:
        return self.gpg.gives

    def convert(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        return self.gpg.checked(blocks, self.signature)


class _Running:
    """A process of GnuPG whose status is read by a thread.

    :param blocks: the blocks that another thread feeds it; `None`: `feed` does.
    :param given: descriptors for it to read from, which are closed here.
    """

    def __init__(
        self,
        command: list[str],
        passphrase: str,
        blocks: Iterator[bytes] | None,
        status: _Status,
        given: tuple[int, ...] = (),
    ) -> None:
        self._error: BaseException | None = None
        secret, lines = _pipe_with(f"{passphrase}\n".encode()), os.pipe()
        try:
            self._process = subprocess.Popen(
                [command[0], f"--passphrase-fd={secret}", f"--status-fd={lines[1]}", *command[1:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=(secret, lines[1], *given),
                env=_environment(),
            )
        except BaseException:
            os.close(lines[0])
            raise
        finally:
            for descriptor in (secret, lines[1], *given):
                os.close(descriptor)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input = self._process.stdin
        self.output = self._process.stdout
        self._lines = os.fdopen(lines[0], "rb")
        self._threads = [Thread(target=status.read, args=(self._lines,))]
        if blocks is not None:
            self._threads.append(Thread(target=self._feed_all, args=(blocks,)))
        for thread in self._threads:
            thread.start()

    def _feed_all(self, blocks: Iterator[bytes]) -> None:
        try:
            for block in blocks:
                self._input.write(block)
        except BrokenPipeError:
            pass  # it has seen enough, and reports the reason
        except BaseException as error:
            self._error = error
            self._process.kill()
        finally:
            self._close_input()

    def feed(self, block: bytes) -> None:
        """Give it the next block, unless it has seen enough."""
        with suppress(BrokenPipeError):
            self._input.write(block)

    def _close_input(self) -> None:
        with suppress(BrokenPipeError):
            self._input.close()

    def ended(self) -> int:
        """Wait for its end, after the last block, and return its exit code.

        :raises Exception: the blocks did.
        """
        if len(self._threads) == 1:
            self._close_input()
        for thread in self._threads:
            thread.join()
        code = self._process.wait()
        if self._error is not None:
            raise self._error
        return code

    def __enter__(self) -> _Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        for thread in self._threads:
            thread.join()
        self._process.wait()
        self._close_input()
        self.output.close()
        self._lines.close()


def _pipe_with(data: bytes) -> int:
    """Return the end of a pipe from which some bytes can be read, as many as a pipe holds."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as file:
        file.write(data)
    return reading
