"""Converters for OpenPGP, which decrypt files, encrypt them or check their signatures by GnuPG.

Keys and passphrase come from an Airflow connection: the passphrase is its password, and its extra `keys` has armored public and
private keys, one after another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from airflow_gobblin.copy.conversion.limits import MOST_BYTES, MOST_RATIO, check_limits
from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.wire import record

if TYPE_CHECKING:
    from airflow_gobblin.connections import Connections
    from airflow_gobblin.copy.conversion.converters import CompanionConverter, FileConverter

_FINGERPRINT = re.compile("[0-9A-F]{40}|[0-9A-F]{64}")


@record("openpgp_decrypt")
@dataclass(frozen=True)
class Decrypt:
    """Decrypt OpenPGP messages.

    :param keys: the connection with the private key, and with the public ones of signers if signatures are asked for.
    :param signed_by: the fingerprints of keys, one of which must have signed the message; none: signatures are not looked at.
    :param takes: the extension.
    :param most_bytes: the maximum size of a message's content, since messages are compressed.
    :param most_ratio: how many times the size of the source's file its content may have, if it is above 10 MiB.
    """

    keys: str
    signed_by: tuple[str, ...] = ()
    takes: str = ".gpg"
    most_bytes: int = MOST_BYTES
    most_ratio: int = MOST_RATIO
    gives: ClassVar[str] = ""

    def __post_init__(self) -> None:
        _take_fingerprints(self, "signed_by")
        check_limits(self, "most_bytes", "most_ratio")

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connection with the keys."""
        return (self.keys,)

    def connected(self, connections: Connections) -> FileConverter:
        """Return it with its keys."""
        from airflow_gobblin.copy.conversion.gpg import Gpg

        return Gpg.of(self, connections).decrypting(self.signed_by)


@record("openpgp_check_signature")
@dataclass(frozen=True)
class CheckSignature:
    """Take the content out of OpenPGP messages that are signed but not encrypted.

    :param keys: the connection with the public keys of the signers.
    :param signed_by: the fingerprints of these keys, one of which must have signed the message.
    :param takes: the extension.
    :param most_bytes: the maximum size of a message's content, since messages are compressed.
    :param most_ratio: how many times the size of the source's file its content may have, if it is above 10 MiB.
    """

    keys: str
    signed_by: tuple[str, ...]
    takes: str = ".gpg"
    most_bytes: int = MOST_BYTES
    most_ratio: int = MOST_RATIO
    gives: ClassVar[str] = ""

    def __post_init__(self) -> None:
        _take_fingerprints(self, "signed_by", needed=True)
        check_limits(self, "most_bytes", "most_ratio")

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connection with the keys."""
        return (self.keys,)

    def connected(self, connections: Connections) -> FileConverter:
        """Return it with its keys."""
        from airflow_gobblin.copy.conversion.gpg import Gpg

        return Gpg.of(self, connections).checking(self.signed_by)


@record("openpgp_check_detached_signature")
@dataclass(frozen=True)
class CheckDetachedSignature:
    """Check signatures that are in files of their own beside the files that they sign, and leave both as they are.

    :param keys: the connection with the public keys of the signers.
    :param signed_by: the fingerprints of these keys, one of which must have signed the file.
    :param takes: the extension of the files that need a signature; empty: all but signatures.
    :param companions: the extensions of signatures, which follow the file's whole name; the first one that is there counts.
    """

    keys: str
    signed_by: tuple[str, ...]
    takes: str = ""
    companions: tuple[str, ...] = (".sig", ".asc")

    def __post_init__(self) -> None:
        _take_fingerprints(self, "signed_by", needed=True)
        given: object = self.companions
        if not isinstance(given, tuple) or not given or not all(given):
            raise ConfigurationError(
                operation="use",
                subject=f"companions={given!r} of CheckDetachedSignature",
                cause="they are not extensions",
                hint="Leave them out, or write ('.sig',).",
            )

    @property
    def gives(self) -> str:
        """The extension that files had before."""
        return self.takes

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connection with the keys."""
        return (self.keys,)

    def connected(self, connections: Connections) -> CompanionConverter:
        """Return it with its keys."""
        from airflow_gobblin.copy.conversion.gpg import Gpg

        return Gpg.of(self, connections).checking(self.signed_by)


@record("openpgp_encrypt")
@dataclass(frozen=True)
class Encrypt:
    """Encrypt all files but those that have its extension.

    :param keys: the connection with the public keys of the recipients, and with the private key of the signer if it is to sign.
    :param to: the fingerprints of the recipients' keys.
    :param sign_by: the fingerprint of the key to sign with; empty: the messages are not signed.
    :param gives: the extension.
    """

    keys: str
    to: tuple[str, ...]
    sign_by: str = ""
    gives: str = ".gpg"
    takes: ClassVar[str] = ""

    def __post_init__(self) -> None:
        _take_fingerprints(self, "to", needed=True)
        if self.sign_by:
            object.__setattr__(self, "sign_by", _fingerprint(self, self.sign_by))

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The connection with the keys."""
        return (self.keys,)

    def connected(self, connections: Connections) -> FileConverter:
        """Return it with its keys."""
        from airflow_gobblin.copy.conversion.gpg import Gpg

        return Gpg.of(self, connections).encrypting(self.to, self.sign_by)


def gives_other_bytes(converters: Iterable[object]) -> bool:
    """Return whether a file gets different bytes each time it is converted, so that comparing contents shows nothing."""
    return any(isinstance(one, Encrypt) for one in converters)


def _take_fingerprints(converter: object, name: str, *, needed: bool = False) -> None:
    """Convert the fingerprints of an option to the form in which GnuPG writes them.

    :raises ConfigurationError: there are none, though they are needed, or one is malformed.
    """
    given = getattr(converter, name)
    if not isinstance(given, tuple) or (needed and not given):
        raise ConfigurationError(
            operation="use",
            subject=f"{name}={given!r} of {type(converter).__name__}",
            cause="it is not a tuple of fingerprints" if not isinstance(given, tuple) else "it is empty",
            hint="Give the whole fingerprints of keys: ('0123456789ABCDEF0123456789ABCDEF01234567',).",
        )
    object.__setattr__(converter, name, tuple(_fingerprint(converter, one) for one in given))


def _fingerprint(converter: object, given: str) -> str:
    found = given.replace(" ", "").upper()
    if not _FINGERPRINT.fullmatch(found):
        raise ConfigurationError(
            operation="use",
            subject=f"fingerprint {given!r} of {type(converter).__name__}",
            cause="it has neither 40 nor 64 hexadecimal digits",
            hint="`gpg --list-keys --with-colons` prints it. A name or a short id may be that of another key.",
        )
    return found
