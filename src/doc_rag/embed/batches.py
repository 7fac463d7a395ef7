"""Hand out texts in batches within a provider's limits, and learn when it allows less than it publishes."""

from __future__ import annotations

import threading
from collections.abc import Sequence


class Batches:
    """Positions of `texts` in order, a batch at a time; safe for several threads.

    `tokens[k]` is the estimate for text k. A text over the token limit is a batch of its own: only the
    provider knows whether it really is too long.
    """

    def __init__(self, tokens: Sequence[int], max_items: int, max_tokens: int) -> None:
        self._tokens = tokens
        self._max_items = max_items
        self._max_tokens = max_tokens
        self._next = 0
        self._lock = threading.Lock()

    def take(self) -> tuple[int, ...] | None:
        """The next batch, None when all are handed out."""
        with self._lock:
            first = last = self._next
            size = 0
            while last < len(self._tokens) and last - first < self._max_items:
                size += self._tokens[last]
                if size > self._max_tokens and last > first:
                    break
                last += 1
            self._next = last
            return tuple(range(first, last)) or None

    def limit(self, *, items: int | None = None, tokens: int | None = None) -> None:
        """Make the batches to come no larger than this."""
        with self._lock:
            self._max_items = min(self._max_items, max(1, items or self._max_items))
            self._max_tokens = min(self._max_tokens, max(1, tokens or self._max_tokens))

    def count(self) -> int:
        """How many batches are left, by today's limits."""
        with self._lock:
            batches = size = items = 0
            for tokens in self._tokens[self._next :]:
                if not items or items == self._max_items or size + tokens > self._max_tokens:
                    batches, size, items = batches + 1, 0, 0
                size, items = size + tokens, items + 1
            return batches
