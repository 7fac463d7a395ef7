"""What a client's model is told at the start of a session, without making the session wait for the database.

The text needs the database, which may have to be started first. So it is fetched in the background and
the handshake waits for it a moment. If it is not there by then, the client gets the text of the last
session that used this embedded database, marked as such, and where there was none, the general part.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from doc_rag.render import HOW_TO_WORK
from doc_rag.workers import Workers

if TYPE_CHECKING:
    from doc_rag.settings import Settings

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 0.25
FRESH_SECONDS = 30.0
MAX_KEPT_BYTES = 32_768


class LastText:
    """The text of the last session, in a file beside the embedded database; `path` None keeps none.

    A convenience: whatever goes wrong with the file, there is simply no text. Folders are never made.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    @classmethod
    def of(cls, settings: Settings) -> LastText:
        """Kept with the embedded database alone: any other answers fast enough, and its folder is not ours."""
        if settings.database_url is not None:
            return cls(None)
        name = hashlib.sha256(settings.collection.encode()).hexdigest()[:16]
        return cls(settings.data_dir / f"instructions-{name}.txt")

    def read(self) -> str | None:
        if self._path is None:
            return None
        try:
            with self._path.open("rb") as file:
                text = file.read(MAX_KEPT_BYTES).decode("utf-8")
                written = datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime).astimezone()
        except (OSError, UnicodeDecodeError):
            return None
        return f"{text}\n\n(As it was on {written:%Y-%m-%d %H:%M %Z}; list_collections() has it as it is.)"

    def write(self, text: str) -> None:
        if self._path is None:
            return
        part = self._path.with_suffix(f".{os.getpid()}")
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(text.encode("utf-8", "replace")[:MAX_KEPT_BYTES])
            os.replace(part, self._path)
        except OSError:
            log.debug("the instructions could not be kept", exc_info=True)


class Instructions:
    """A middleware of the MCP server: puts the newest text into the answers that carry instructions."""

    fallback = HOW_TO_WORK

    def __init__(
        self,
        fetch: Callable[[], str],
        workers: Workers,
        last: LastText,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._workers = workers
        self._last = last
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._text: str | None = None
        self._fetched_at = float("-inf")
        self._task: asyncio.Task[None] | None = None

    async def current(self) -> str:
        """The newest text there is: a little old while a newer one is fetched, general while there is none."""
        under_way = self._task is not None and not self._task.done()
        if not under_way and self._clock() - self._fetched_at > FRESH_SECONDS:
            self._task = asyncio.create_task(self._refresh())
        if self._text is None:
            kept = self._last.read()
            if kept is not None:
                return kept
            if self._task is not None:
                await asyncio.wait({self._task}, timeout=self._patience_seconds)
        return self._text or self.fallback

    async def _refresh(self) -> None:
        def fetch() -> str:
            text = self._fetch()
            self._last.write(text)
            return text

        try:
            self._text = await self._workers.run(fetch)
            self._fetched_at = self._clock()
        except Exception:
            log.warning("the instructions could not be made; clients get the general ones", exc_info=True)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method in ("initialize", "server/discover") and isinstance(result, Mapping):
            return {**result, "instructions": await self.current()}
        return result
