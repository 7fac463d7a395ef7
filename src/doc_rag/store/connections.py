"""Connections that do not wait for ever on a server that is paused, or that the network has lost.

A server-side statement_timeout does not end such a wait, since nobody is there to keep it, and keepalives
do not either, since the other machine's kernel still answers them.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg


class NoAnswer(psycopg.OperationalError):
    """The server keeps the connection open and says nothing: it is paused, or the network lost it."""


class PatientConnection(psycopg.Connection[Any]):
    """A connection that closes itself when the server says nothing for `patience_seconds` (None: waits for ever)."""

    patience_seconds: float | None = None

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        patience = self.patience_seconds
        if patience is None:
            return super().wait(gen, *args, **kwargs)
        try:
            return super().wait(_ending(gen, patience), *args, **kwargs)
        except NoAnswer:
            self.pgconn.finish()  # what it would say now would be taken for the answer to something else
            raise

    @contextmanager
    def patient(self, seconds: float) -> Iterator[None]:
        """Another patience for the block."""
        before, self.patience_seconds = self.patience_seconds, seconds
        try:
            yield
        finally:
            self.patience_seconds = before


def _ending(gen: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
    """`gen` as psycopg drives it (sent what its socket is ready for, ten times a second at least), until `seconds`."""
    deadline = time.monotonic() + seconds
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > deadline:
                raise NoAnswer(f"the server did not answer for {seconds:g} s")
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value
