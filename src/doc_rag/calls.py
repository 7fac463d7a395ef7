"""The calls under way that a client may call off, by who made them and the id it gave them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Calls:
    """Safe between threads. Two calls of one name at once are both called off."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[str, str], list[threading.Event]] = {}

    @contextmanager
    def open(self, client: str, request_id: object) -> Iterator[threading.Event]:
        """An event that is set when `client` calls off `request_id`, for as long as the block lasts."""
        key, cancelled = (client, str(request_id)), threading.Event()
        with self._lock:
            self._open.setdefault(key, []).append(cancelled)
        try:
            yield cancelled
        finally:
            with self._lock:
                self._open[key].remove(cancelled)
                if not self._open[key]:
                    del self._open[key]

    def cancel(self, client: str, request_id: object) -> None:
        """Call off that client's request; nothing happens where there is no such call."""
        with self._lock:
            for cancelled in self._open.get((client, str(request_id)), ()):
                cancelled.set()

    def __len__(self) -> int:
        return sum(len(events) for events in self._open.values())
