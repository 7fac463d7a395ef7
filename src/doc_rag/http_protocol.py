"""uvicorn's HTTP/1.1 protocol, with an end to the patience it has for slow clients.

The attack: thousands of connections that send a header byte a minute, or never read their answer
(slowloris); each holds a file descriptor until none is left. uvicorn's own keep-alive timer starts
only after an answer and stops at the first byte, so it does not see them. A request's body has a
deadline of its own in `middleware.bodies`.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 1_000
HEADER_SECONDS = 10.0
"""From the first byte (or the connection) until a request's headers are complete."""
STALL_SECONDS = 30.0
"""How long a client may leave a full send buffer unread."""


class GuardedProtocol(H11Protocol):
    """Cuts connections beyond the limit, slow headers, and clients that stop reading."""

    header_seconds = HEADER_SECONDS
    stall_seconds = STALL_SECONDS
    max_connections = MAX_CONNECTIONS

    _header_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.abort()
            return
        self._header_timer = self.loop.call_later(self.header_seconds, self._cut)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._stop_stall_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering():
            self._disarm()
        elif self._header_timer is None and not self.transport.is_closing():
            self._header_timer = self.loop.call_later(self.header_seconds, self._cut)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # An answer given before the body was read (401, 413): the rest is thrown away, but not for ever.
        if self.conn.their_state is h11.SEND_BODY and not self._is_answering() and self._header_timer is None:
            self._header_timer = self.loop.call_later(self.header_seconds, self._cut)

    def send_400_response(self, msg: str) -> None:
        # The bytes that are no HTTP may be in the body of a request that is being answered: its answer is
        # dropped then, since there can be only one. uvicorn would raise in the middle of it.
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall_timer is None:
            self._stall_timer = self.loop.call_later(self.stall_seconds, self._cut)

    def resume_writing(self) -> None:
        self._stop_stall_timer()
        super().resume_writing()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _disarm(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _cut(self) -> None:
        self.transport.abort()
