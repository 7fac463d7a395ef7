"""Records what providers were sent: in the database, and for the run under way in memory.

"Local tally" means: what the installations on this database sent, as the providers' answers counted
it. A provider's bill also has what other programs sent, and calls whose answer never arrived.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter

from doc_rag.errors import DatabaseUnavailable
from doc_rag.records import UsageEvent
from doc_rag.store import usage
from doc_rag.store.pool import Database

log = logging.getLogger(__name__)


class UsageRecorder:
    """Counts provider calls. Safe between threads; a database that is away delays the tally, and loses none."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._pending: list[UsageEvent] = []
        self._tokens: Counter[str] = Counter()

    def record(self, event: UsageEvent) -> None:
        """Count one provider call."""
        with self._lock:
            self._tokens[event.operation] += event.tokens or 0
            self._pending.append(event)
            events, self._pending = self._pending, []
        unsaved = list(events)
        try:
            with self._database.connection() as connection:
                while unsaved:
                    usage.add(connection, unsaved[0])
                    unsaved.pop(0)
        except DatabaseUnavailable as error:
            log.warning("the usage tally is kept in memory for now: %s", error)
            with self._lock:
                self._pending = unsaved + self._pending

    def tokens(self, operation: str) -> int:
        """Tokens that answers have counted for `operation` since the process started."""
        with self._lock:
            return self._tokens[operation]
