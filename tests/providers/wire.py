"""The base of the wire-true provider servers: a real HTTP server, programmable faults, a record of every request."""

from __future__ import annotations

import base64
import json
import os
import random
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from doc_rag.settings import Settings, load_settings
from tests.providers.faults import (
    Fault,
    Json,
    cut,
    empty_data,
    half_body,
    hang,
    html_page,
    not_a_number,
    rate_limited,
    repeated_indexes,
    reversed_order,
    slow,
    status,
    wrong_dimension,
    zero_vectors,
)

__all__ = [
    "Fault",
    "Json",
    "ProviderServer",
    "Recorded",
    "Refused",
    "cut",
    "empty_data",
    "half_body",
    "hang",
    "html_page",
    "not_a_number",
    "rate_limited",
    "repeated_indexes",
    "reversed_order",
    "slow",
    "status",
    "wrong_dimension",
    "zero_vectors",
]


@dataclass(slots=True)
class Recorded:
    """One request as it came, and what became of it."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: Json
    status: int | None = None
    """None where no whole answer was sent."""
    tokens: int = 0
    fault: str | None = None
    at: float = field(default_factory=time.monotonic)
    """When it had arrived, by `time.monotonic()`."""


class Refused(Exception):
    """An answer with an error status, in the vendor's own words."""

    def __init__(self, status: int, body: Json) -> None:
        super().__init__(body)
        self.status = status
        self.body = body


class ProviderServer:
    """A provider on a loopback port, from `with` to its end. See `tests.providers.servers` for how to use one."""

    path = "/v1"

    def __init__(self, *, seed: int = 0) -> None:
        self.requests: list[Recorded] = []
        self._faults: deque[Fault | None] = deque()
        self._rates: list[tuple[Fault, float]] = []
        self._random = random.Random(seed)
        self._lock = threading.Condition()
        self._held_until = 0
        self._running = 0
        self.peak = 0
        """The most requests that were held at once by `hold_until`."""
        self.closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.provider = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def host(self) -> str:
        """host:port, which is the endpoint in `ModelIdentity`."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}{self.path}"

    def environ(self) -> dict[str, str]:
        """The variables that point doc-rag at this server."""
        raise NotImplementedError

    def settings(self, **variables: str) -> Settings:
        """Settings on this server; `variables` are more of them by name, and win."""
        fixed = {"RAG_COLLECTION": "test", "RAG_ENV_FILE": os.devnull}
        return load_settings(fixed | self.environ() | variables)

    def fail_next(self, *faults: Fault | None) -> None:
        """These faults befall the next requests, one each, in order; None lets one through."""
        self._faults.extend(faults)

    def fail_at_random(self, fault: Fault, rate: float) -> None:
        """From now on `fault` befalls this share of the requests, by the seed."""
        self._rates.append((fault, rate))

    def heal(self) -> None:
        """From now on nothing befalls the requests."""
        with self._lock:
            self._faults.clear()
            self._rates.clear()

    def pick_fault(self) -> Fault | None:
        with self._lock:
            if self._faults:
                return self._faults.popleft()
            draw = self._random.random()
            for fault, rate in self._rates:
                if draw < rate:
                    return fault
                draw -= rate
            return None

    def hold_until(self, requests: int) -> None:
        """Answer nothing before so many requests have arrived: they are under way at once then, or time out."""
        self._held_until = requests

    def wait_for(self, requests: int, timeout_seconds: float = 10.0) -> bool:
        """Wait until so many requests have arrived."""
        with self._lock:
            return self._lock.wait_for(lambda: len(self.requests) >= requests, timeout_seconds)

    def begin(self, request: Recorded) -> None:
        with self._lock:
            self.requests.append(request)
            self._running += 1
            self.peak = max(self.peak, self._running)
            self._lock.notify_all()
            self._lock.wait_for(lambda: len(self.requests) >= self._held_until, 10)
            # Before the answer is sent, and so before the client can begin another call.
            self._running -= 1

    @property
    def bodies(self) -> list[Json]:
        """The body of every request, in the order they arrived."""
        return [request.body for request in self.requests]

    @property
    def texts_sent(self) -> Counter[str]:
        """How often each text was sent to be embedded, in requests of any outcome."""
        return Counter(text for request in self.requests for text in self.texts_of(request))

    @property
    def texts_answered(self) -> Counter[str]:
        """How often each text was in a request that was answered whole and well: what a user pays for."""
        answered = [request for request in self.requests if request.status == 200]
        return Counter(text for request in answered for text in self.texts_of(request))

    @property
    def tokens_answered(self) -> int:
        """Tokens of all answers delivered whole: what the tally must come to."""
        return sum(request.tokens for request in self.requests if request.status == 200)

    @property
    def cut_short(self) -> int:
        """Requests that got no whole answer."""
        return sum(request.status is None for request in self.requests)

    def texts_of(self, request: Recorded) -> list[str]:
        texts = request.body.get("input", [])
        return [texts] if isinstance(texts, str) else texts

    def answer(self, request: Recorded) -> Json:
        """The good answer, its tokens noted in `request`. Raises Refused."""
        raise NotImplementedError

    def encoded(self, request: Recorded, answer: Json) -> Json:
        """`answer` with its vectors in the encoding that was asked for."""
        if request.body.get("encoding_format") == "base64":
            for row in answer["data"]:
                packed = struct.pack(f"<{len(row['embedding'])}f", *row["embedding"])
                row["embedding"] = base64.b64encode(packed).decode()
        return answer


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    provider: ProviderServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is part of the tests; socketserver would print its traceback."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the body waits 40 ms for the acknowledgement of the headers
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        provider = self.server.provider
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Recorded("POST", parts.path, parts.query, headers, json.loads(data))
        fault = provider.pick_fault()
        request.fault = fault.name if fault else None
        provider.begin(request)
        if fault and fault.name in ("hang", "cut"):
            if fault.name == "hang":
                provider.closing.wait(60)
            self._reset()
        elif fault and fault.status is not None:
            request.status = fault.status
            self._send(fault.status, fault.body, fault.content_type, fault.headers)
        else:
            self._answer(provider, request, fault)

    def _answer(self, provider: ProviderServer, request: Recorded, fault: Fault | None) -> None:
        if fault and fault.seconds:
            provider.closing.wait(fault.seconds)
        try:
            answer, code = provider.answer(request), 200
        except Refused as refused:
            answer, code = refused.body, refused.status
        if code == 200:
            answer = provider.encoded(request, fault.spoil(answer) if fault and fault.spoil else answer)
        body = json.dumps(answer).encode()
        if fault and fault.name == "half_body":
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self._reset(hard=False)
            return
        request.status = code
        self._send(code, body)

    def _send(
        self,
        code: int,
        body: bytes,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _reset(self, *, hard: bool = True) -> None:
        if hard:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        if not hard:
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()
