"""The query cache: LRU and TTL, and never stale, because an entry is served only under the revision it was read at."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping

from cachetools import TTLCache

from doc_rag.records import CacheStats, QueryAnswer


class QueryCache:
    """Answers by (normalised query, top_k, scope, ranking settings). Safe between threads."""

    def __init__(
        self, max_size: int, ttl_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_size = max_size
        self._ttl_seconds = ttl_seconds
        self._entries: TTLCache[Hashable, QueryAnswer] = TTLCache(max_size, ttl_seconds, timer=clock)
        self._lock = threading.Lock()
        self._hits = 0
        self._misses = 0

    def get(self, key: Hashable, revisions: Mapping[str, int]) -> QueryAnswer | None:
        """The answer under `key` if it was read at exactly these revisions; an older one is dropped."""
        with self._lock:
            answer = self._entries.get(key)
            if answer is not None and answer.revisions == dict(revisions):
                self._hits += 1
                return answer
            if answer is not None:
                self._entries.pop(key, None)
            self._misses += 1
            return None

    def put(self, key: Hashable, answer: QueryAnswer) -> None:
        """Keep an answer, unless the cache is turned off."""
        if self._max_size == 0 or self._ttl_seconds == 0:
            return
        with self._lock:
            self._entries[key] = answer

    def clear(self) -> int:
        """Drop every entry; how many there were. The counters stay."""
        with self._lock:
            self._entries.expire()
            dropped = len(self._entries)
            self._entries.clear()
            return dropped

    def stats(self) -> CacheStats:
        with self._lock:
            self._entries.expire()
            return CacheStats(self._hits, self._misses, len(self._entries), self._max_size, self._ttl_seconds)
