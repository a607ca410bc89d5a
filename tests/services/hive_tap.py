"""A relay before a Hive metastore, which sees each call to it, and can lose one of them with its caller."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread

from tests.services.hive import Metastore

__all__ = ["LostCall", "Tap", "tapped"]

_CALL = b"\x80\x01\x00\x01"
"""The beginning of a call in Thrift's binary protocol; the length of its name, in four bytes, and the name follow."""
_CHANGES = ("create_table", "add_partition", "drop_partition", "alter_", "drop_table")
_PIECE = 1 << 16


@dataclass(frozen=True)
class LostCall:
    """The call at which a caller is killed.

    :param name: the beginning of its name.
    :param number: which of those calls it is, from 1 on.
    :param arrives: whether the metastore gets it, and only its answer is lost.
    """

    name: str
    number: int
    arrives: bool


@dataclass
class Tap:
    """The calls to a metastore, as far as they are known.

    :param metastore: the relay, as a metastore.
    :param changes: the names of the calls that change something and that the metastore got.
    :param lose: the call to lose, if it is still to come.
    :param kill: kills its caller.
    """

    metastore: Metastore
    changes: list[str] = field(default_factory=list)
    lose: LostCall | None = None
    kill: Callable[[], None] = lambda: None

    def relay(self, caller: socket.socket, behind: int) -> None:
        """Relay one connection, in which calls and answers alternate.

        :param behind: the metastore's own port.
        """
        lost = None
        with suppress(OSError), caller, socket.create_connection(("127.0.0.1", behind)) as metastore:
            while True:
                for one in select.select([caller, metastore], [], [])[0]:
                    piece = one.recv(_PIECE)
                    if not piece:
                        return
                    lost = self._lost(piece) or lost
                    if lost is not None and (one is metastore or not lost.arrives):
                        self.kill()
                        return
                    (metastore if one is caller else caller).sendall(piece)

    def _lost(self, piece: bytes) -> LostCall | None:
        """Note the call that a piece begins, if it does.

        :return: it, if it is the one to lose.
        """
        if not piece.startswith(_CALL):
            return None
        name = piece[8 : 8 + int.from_bytes(piece[4:8])].decode()
        if not name.startswith(_CHANGES):
            return None
        lost = self.lose
        before = sum(one.startswith(lost.name) for one in self.changes) if lost else 0
        if lost is None or not name.startswith(lost.name) or before + 1 != lost.number:
            self.changes.append(name)
            return None
        self.lose = None
        if lost.arrives:
            self.changes.append(name)
        return lost


@contextmanager
def tapped(metastore: Metastore) -> Iterator[Tap]:
    """Run a relay before a metastore."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        tap = Tap(Metastore(listener.getsockname()[1]))

        def serve() -> None:
            with suppress(OSError):  # the listener is closed
                while True:
                    caller, _ = listener.accept()
                    Thread(target=tap.relay, args=(caller, metastore.port), daemon=True).start()

        Thread(target=serve, daemon=True).start()
        yield tap
