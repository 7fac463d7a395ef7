"""An OpenAI-style embeddings endpoint that holds back what a test tells it to, and says when it does.

Texts with the word HELD wait until the gate is opened, which makes a long run out of a short one without
any sleeping. A vector is made of the words of its text, so that a query finds what shares words with it.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DIMS = 64
HELD = "slowpoke"
MAX_HOLD_SECONDS = 30


class Gate:
    """Closed by `hold()`; `held` is set once a request waits at it."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.held = threading.Event()
        self.texts: list[str] = []
        self.url = ""

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Closed for the block, or until `release()`."""
        self.held.clear()
        self._open.clear()
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        self._open.set()

    def wait_until_held(self) -> None:
        assert self.held.wait(MAX_HOLD_SECONDS), "no held text was sent to be embedded"

    def answer(self, texts: list[str]) -> list[list[float]]:
        if any(HELD in text for text in texts):
            self.held.set()
            self._open.wait(MAX_HOLD_SECONDS)
        self.texts += texts
        return [vector(text) for text in texts]


def vector(text: str) -> list[float]:
    """Counts of the words, each in the place its hash gives it; never all zero."""
    counts = [0.01] * DIMS
    for word in text.lower().split():
        counts[hashlib.sha256(word.strip(".,:?#").encode()).digest()[0] % DIMS] += 1.0
    return counts


@contextmanager
def serving_gate() -> Iterator[Gate]:
    """The endpoint on a loopback port, for the block."""
    gate = Gate()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else the body waits 40 ms for the acknowledgement of the headers

        def do_POST(self) -> None:
            body: Any = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
            vectors = gate.answer(texts)
            data = [{"object": "embedding", "index": i, "embedding": v} for i, v in enumerate(vectors)]
            tokens = sum(len(text.split()) for text in texts)
            usage = {"prompt_tokens": tokens, "total_tokens": tokens}
            answer = {"object": "list", "data": data, "model": body["model"], "usage": usage}
            payload = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            with suppress(ConnectionError):  # the server under test may have ended meanwhile
                self.wfile.write(payload)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        gate.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield gate
        finally:
            gate.release()
            server.shutdown()
            thread.join(10)
