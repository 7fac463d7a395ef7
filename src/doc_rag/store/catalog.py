"""Collections and their generations: which there are, which answers queries, and the switch between them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from psycopg.rows import class_row, dict_row

from doc_rag.errors import CollectionNotFound
from doc_rag.records import CollectionSummary, Generation, GenerationSettings
from doc_rag.store import schema
from doc_rag.store.pool import Connection
from doc_rag.store.queries import on_partition, query

SETTING_FIELDS = tuple(GenerationSettings.__dataclass_fields__)
WRITE_LOCK_CLASS = 0x7261676D
"""First half of the advisory lock's key ("ragm") that a writer holds; the second is the collection's id."""
DROP_LOCK = 0x64726F70  # "drop", as an advisory lock key


def ensure_collection(connection: Connection, name: str) -> int:
    """The id of the collection called `name`, made where there is none. It shows once it has a generation."""
    while True:
        row = connection.execute(query("collection_ensure"), {"name": name}).fetchone()
        if row:  # none where another process made it between the two halves of the statement
            return int(row[0])


def names(connection: Connection) -> list[str]:
    """Every collection that can be asked, sorted."""
    return [row[0] for row in connection.execute(query("collection_names"))]


def revision(connection: Connection, name: str) -> int | None:
    """The collection's revision by one index read; None where it does not exist."""
    row = connection.execute(query("collection_revision"), {"name": name}).fetchone()
    return int(row[0]) if row else None


def revisions(connection: Connection) -> dict[str, int]:
    """The revision of every collection."""
    return {name: int(number) for name, number in connection.execute(query("collection_revisions"))}


def docs_root(connection: Connection, name: str) -> str | None:
    """Where the collection's files were when it was last ingested."""
    row = connection.execute(query("collection_root"), {"name": name}).fetchone()
    return row[0] if row else None


def summaries(connection: Connection) -> tuple[CollectionSummary, ...]:
    """A line for every collection, sorted by name."""
    with connection.cursor(row_factory=class_row(CollectionSummary)) as cursor:
        return tuple(cursor.execute(query("collection_summaries"), {"write_lock_class": WRITE_LOCK_CLASS}))


def generation(connection: Connection, name: str, state: str = "live") -> Generation | None:
    """The live or building generation of a collection, None where there is none."""
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(query("generation_columns"), {"name": name, "state": state}).fetchone()
    return _generation(row) if row else None


def live_generation(connection: Connection, name: str) -> Generation:
    """The generation that answers queries.

    Raises:
        CollectionNotFound: with the names that exist.
    """
    found = generation(connection, name)
    if found is None:
        raise CollectionNotFound(not_found_message(name, names(connection)))
    return found


def live_generations(connection: Connection) -> list[Generation]:
    """The live generation of every collection, sorted by name."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return [_generation(row) for row in cursor.execute(query("generations_live"))]


def generations_alike(connection: Connection, generation: Generation) -> list[int]:
    """Ids of the generations whose vectors are comparable with this one's, its own collection's first."""
    settings = generation.settings
    rows = connection.execute(
        query("generations_alike"),
        {
            "provider": settings.provider,
            "endpoint": settings.endpoint,
            "model": settings.model,
            "dims": settings.dims,
            "collection_id": generation.collection_id,
        },
    )
    return [row[0] for row in rows if row[0] != generation.id]


def not_found_message(name: str, existing: list[str]) -> str:
    """One sentence that names what was asked for, what there is, and what to do."""
    if not existing:
        return (
            f'collection "{name}" is not indexed, nor is any other; run reindex_docs() or make ingest first.'
        )
    shown = ", ".join(existing[:20]) + (f" and {len(existing) - 20} more" if len(existing) > 20 else "")
    return f'collection "{name}" is not indexed; indexed collections: {shown}. Pass one of these, or omit collection.'


def begin_generation(
    connection: Connection, collection: str, collection_id: int, settings: GenerationSettings, *, forced: bool
) -> Generation:
    """Make a building generation and its partition, both or neither. The caller holds the write lock."""
    values: dict[str, Any] = {"collection_id": collection_id, "forced": forced, **asdict(settings)}
    with connection.transaction():
        row = connection.execute(query("generation_insert"), values).fetchone()
        assert row is not None  # an insert with "returning" has one
        schema.make_partition(connection, int(row[0]), settings.dims, settings.text_language)
    return Generation(int(row[0]), collection_id, collection, "building", settings, forced)


def make_live(connection: Connection, generation_id: int, collection_id: int) -> None:
    """The switch: from its commit on, queries are answered from the new generation."""
    with connection.transaction():
        connection.execute(query("generation_retire"), {"collection_id": collection_id, "state": "live"})
        connection.execute(query("generation_make_live"), {"generation_id": generation_id})
        connection.execute(
            query("collection_switch"), {"generation_id": generation_id, "collection_id": collection_id}
        )


def retire_building(connection: Connection, collection_id: int) -> None:
    """Give up a building generation, because the settings have changed again."""
    connection.execute(query("generation_retire"), {"collection_id": collection_id, "state": "building"})


def retire_collection(connection: Connection, collection_id: int) -> None:
    """Take a whole collection out of use, in one transaction; `drop_retired` then frees its space."""
    parameters = {"collection_id": collection_id}
    with connection.transaction():
        connection.execute(query("collection_take_down"), parameters)
        connection.execute(query("generations_retire"), parameters)


def drop_retired(connection: Connection) -> None:
    """Drop the partitions of retired generations, of any collection; what is still read waits for a later run.

    One process at a time: others leave it to the one that is at it.
    """
    row = connection.execute("select pg_try_advisory_lock(%s)", [DROP_LOCK]).fetchone()
    if not row or not row[0]:
        return
    try:
        for (generation_id,) in connection.execute(query("generations_retired")).fetchall():
            if schema.drop_partition(connection, generation_id):
                connection.execute(query("generation_delete"), {"generation_id": generation_id})
    finally:
        if not connection.broken:
            connection.execute("select pg_advisory_unlock(%s)", [DROP_LOCK])


def finish_run(connection: Connection, collection_id: int, *, docs_root: str, pending_removals: int) -> None:
    """Note a complete run: when it was, where it looked, and how many removals wait to be confirmed."""
    connection.execute(
        query("collection_finish"),
        {"collection_id": collection_id, "docs_root": docs_root, "pending_removals": pending_removals},
    )


def is_miscounted(connection: Connection, generation_id: int) -> bool:
    """Whether a generation's totals are not of the chunks it has: its last run was cut off, or a document removed."""
    row = connection.execute(query("generation_miscounted"), {"generation_id": generation_id}).fetchone()
    return bool(row and row[0])


def refresh_statistics(connection: Connection, generation_id: int) -> None:
    """Count a generation's chunks, characters and lexemes, at the end of an ingest; a little staleness is harmless."""
    parameters = {"generation_id": generation_id}
    with connection.transaction():
        connection.execute(query("term_stats_clear"), parameters)
        connection.execute(on_partition("term_stats_refresh", generation_id), parameters)
        connection.execute(on_partition("generation_statistics", generation_id), parameters)


def _generation(row: dict[str, Any]) -> Generation:
    return Generation(
        row["id"],
        row["collection_id"],
        row["collection"],
        row["state"],
        GenerationSettings(**{name: row[name] for name in SETTING_FIELDS}),
        row["forced"],
    )
