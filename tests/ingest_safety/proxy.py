"""A wire between doc-rag and Postgres that is cut in front of one chosen statement of the run that writes.

To the server that is a client killed in that moment; to the client, a server that went away. Counts what
the client sends on the connection that holds the write lock: each statement, and each end of a round trip.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from psycopg import conninfo

LOCKS = b"pg_try_advisory_lock"
STEPS = (b"E", b"S", b"Q")
"""Frontend messages that are a step: Execute runs a statement, Sync commits what has no transaction of its own, and
Query does both (PostgreSQL documentation, "Message Formats")."""
PROTOCOL_3 = 196_608


class CutProxy:
    """Listens on a Unix socket of its own and passes everything on to the server of `url`."""

    def __init__(self, url: str) -> None:
        self._parameters = conninfo.conninfo_to_dict(url)
        self._folder = tempfile.TemporaryDirectory(prefix="cut-")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(Path(self._folder.name) / ".s.PGSQL.5432"))
        self._listener.listen()
        self._cut_before: int | None = None
        self.steps = 0
        """How many steps the writing connections have sent since `cut_before` was set."""
        self.was_cut = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self._folder.cleanup()

    def url(self, url: str) -> str:
        """The same database through this wire."""
        parameters = conninfo.conninfo_to_dict(url)
        user = f"{quote(str(parameters['user']))}@" if parameters.get("user") else ""
        return f"postgresql://{user}/{parameters['dbname']}?host={quote(self._folder.name)}&port=5432"

    def cut_before(self, step: int | None) -> None:
        """Cut the next writer in front of its `step`-th step, counted from 1; None: count only."""
        self._cut_before, self.steps = step, 0
        self.was_cut.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, self._connected() as server:
            threading.Thread(target=_pass_on, args=(server, client), daemon=True).start()
            try:
                self._forward(client, server)
            except (OSError, EOFError):
                pass
            finally:
                for each in (client, server):
                    _shut(each)

    def _connected(self) -> socket.socket:
        host = str(self._parameters.get("host") or "localhost")
        port = int(str(self._parameters.get("port") or 5432))
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        while True:  # requests for encryption come before the start-up message, and all of these have no type
            length = _exactly(client, 4)
            body = _exactly(client, int.from_bytes(length, "big") - 4)
            server.sendall(length + body)
            if int.from_bytes(body[:4], "big") == PROTOCOL_3:
                break
        is_writer = False
        while True:
            head = _exactly(client, 5)
            body = _exactly(client, int.from_bytes(head[1:], "big") - 4)
            is_writer = is_writer or LOCKS in body
            if is_writer and head[:1] in STEPS:
                self.steps += 1
                if self.steps == self._cut_before:
                    self.was_cut.set()
                    return
            server.sendall(head + body)


def _exactly(source: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = source.recv(min(count, 1 << 16))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
    except OSError:
        pass
    finally:
        _shut(target)


def _shut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side was first
        each.shutdown(socket.SHUT_RDWR)
