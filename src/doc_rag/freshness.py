"""How far the index is behind the disk, by `stat()` alone: a hint for people, never what an ingest goes by."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from doc_rag.plan import plan_removals
from doc_rag.records import Staleness, Walk


def compare(walk: Walk, indexed: Mapping[str, tuple[int, int]]) -> Staleness:
    """Compare what is on disk with (mtime_ns, size_bytes) as indexed, by source."""
    on_disk = {source.name: (source.mtime_ns, source.size_bytes) for source in walk.sources}
    gone = plan_removals(indexed, on_disk, walk.unreadable, guard_share=1.0, confirmed=True).drop
    return Staleness(
        new=tuple(sorted(on_disk.keys() - indexed.keys())),
        changed=tuple(
            sorted(name for name in on_disk.keys() & indexed.keys() if on_disk[name] != indexed[name])
        ),
        removed=gone,
    )


class FreshnessCache:
    """The last comparison, kept for a while so that a folder is not walked for every call."""

    def __init__(self, ttl_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl_seconds = ttl_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: tuple[float, Staleness] | None = None

    def get(self, check: Callable[[], Staleness]) -> Staleness:
        """The kept comparison, or a new one by `check`."""
        with self._lock:
            if self._kept is None or self._clock() - self._kept[0] >= self._ttl_seconds:
                self._kept = (self._clock(), check())
            return self._kept[1]

    def clear(self) -> None:
        """Forget the comparison, after a write."""
        with self._lock:
            self._kept = None
