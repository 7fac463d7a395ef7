"""Runs the server over stdio or HTTP until its client leaves or it is told to stop, and cleans up after it.

Called by `cli` alone. Nothing heavy is imported before the protocol answers: the service, and with it
the database driver, comes in a worker thread.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from typing import TYPE_CHECKING

from doc_rag.listening import check_may_listen, listen
from doc_rag.settings import Settings
from doc_rag.workers import Workers, seconds_left

if TYPE_CHECKING:
    from doc_rag.service import KnowledgeBase

log = logging.getLogger(__name__)

STDIO_CONNECTIONS = 4
HTTP_CONNECTIONS = 10
CLOSE_SECONDS = 5.0


class Opening:
    """The knowledge base, made on first use by whichever thread needs it first; closed at most once."""

    def __init__(self, settings: Settings, max_connections: int) -> None:
        self._settings = settings
        self._max_connections = max_connections
        self._lock = threading.Lock()
        self._kb: KnowledgeBase | None = None

    def __call__(self) -> KnowledgeBase:
        with self._lock:
            if self._kb is None:
                from doc_rag.service import KnowledgeBase

                self._kb = KnowledgeBase(self._settings, max_connections=self._max_connections)
            return self._kb

    def close(self) -> None:
        """Give the database back, waiting a bounded time for it."""
        kb = self._kb
        if kb is None:
            return
        closing = threading.Thread(target=kb.close, name="doc-rag close", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)
        if closing.is_alive():
            log.warning("the database was not given back within %g s; leaving it", CLOSE_SECONDS)


def run_stdio(settings: Settings) -> int:
    """Serve one client over stdin and stdout until it closes stdin, dies, or SIGTERM or SIGINT arrives.

    What was asked before the end of the input is answered, within RAG_SHUTDOWN_SECONDS.
    """
    import anyio

    from doc_rag.mcp_server import build_server
    from doc_rag.stdio_streams import InHand, StdioStreams

    logging.getLogger("doc_rag").setLevel(logging.WARNING)  # clients show stderr to people
    workers = Workers()
    kb = Opening(settings, STDIO_CONNECTIONS)
    server = build_server(kb, settings, workers=workers)
    in_hand = InHand()
    server.middleware.append(in_hand)
    streams = StdioStreams(in_hand, workers.stop, settings.shutdown_seconds)

    async def end_on_signal() -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                workers.stop()
                await anyio.to_thread.run_sync(
                    streams.end, settings.shutdown_seconds - 1, abandon_on_cancel=True
                )

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            if sys.platform != "win32":  # there a signal simply ends the process
                tasks.start_soon(end_on_signal)
            await server.run_stdio_async()
            tasks.cancel_scope.cancel()

    watching = _watching(kb, settings, workers)
    try:
        anyio.run(main)
    except* (BrokenPipeError, ConnectionResetError):
        log.info("the client went away in the middle of an answer")
    finally:
        _leave(workers, kb, settings.shutdown_seconds, watching)
    return 0


def run_http(settings: Settings, host: str, port: int) -> int:
    """Serve over HTTP until SIGTERM or SIGINT.

    Raises:
        SettingsError: no token, or one too short for a public address.
        DocRagError: the port cannot be had.
    """
    token = check_may_listen(settings, host)
    with listen(host, port) as sock:
        from doc_rag.http_app import serve_http

        shown = f"[{host}]" if ":" in host else host
        log.info("listening on http://%s:%d/mcp", shown, sock.getsockname()[1])
        workers = Workers()
        kb = Opening(settings, HTTP_CONNECTIONS)
        watching = _watching(kb, settings, workers)
        try:
            serve_http(kb, settings, sock, token, workers)
        finally:
            _leave(workers, kb, settings.shutdown_seconds, watching)
    return 0


def _watching(kb: Opening, settings: Settings, workers: Workers) -> threading.Thread | None:
    """The thread that ingests changes of the folder by itself, where RAG_WATCH asks for it."""
    if not settings.watch:
        return None

    def watch_folder() -> None:
        from doc_rag.watch import watch

        watch(kb(), workers.stopping)

    thread = threading.Thread(target=watch_folder, name="doc-rag watch", daemon=True)
    thread.start()
    return thread


def _leave(workers: Workers, kb: Opening, patience_seconds: float, watching: threading.Thread | None) -> None:
    """Tell what still runs to stop, wait for it until the time is up, give the database back."""
    workers.stop()
    if watching is not None:
        watching.join(seconds_left(workers.deadline(patience_seconds - 1)))
    if not workers.wait_idle(seconds_left(workers.deadline(patience_seconds - 1))):
        log.warning("%d calls did not end within %g s; leaving them", workers.running, patience_seconds)
    kb.close()
    sys.stderr.flush()
