"""The tally of provider calls, each in a transaction of its own, so that a failed run is counted too."""

from __future__ import annotations

from datetime import date

from psycopg.rows import class_row

from doc_rag.records import UsageEvent, UsageRow
from doc_rag.store.pool import Connection
from doc_rag.store.queries import query


def add(connection: Connection, event: UsageEvent) -> None:
    """Count one event under today (UTC)."""
    connection.execute(
        query("usage_add"),
        {
            "provider": event.provider,
            "model": event.model,
            "operation": event.operation,
            "calls": event.calls,
            "tokens": event.tokens or 0,
            "unknown": event.calls if event.tokens is None else 0,
        },
    )


def rows(connection: Connection) -> tuple[tuple[UsageRow, ...], date | None]:
    """The tally over all days by provider, model and operation, and its first day."""
    with connection.cursor(row_factory=class_row(UsageRow)) as cursor:
        tally = tuple(cursor.execute(query("usage_rows")))
    since = connection.execute(query("usage_since")).fetchone()
    return tally, since[0] if since else None
