"""Brings a database to this version's schema, and makes and drops the partitions of `doc_chunks`.

Partitions are attached and detached in ways that never wait for a reader, nor make one wait: a
plain `create table ... partition of` or `drop table` takes a lock on the parent that queues behind
every open reader and stops all new ones.
"""

from __future__ import annotations

import logging
import re
from importlib.resources import files
from typing import Any

import psycopg
from psycopg import sql

from doc_rag.errors import DatabaseUnavailable, DocRagError, SchemaTooNew
from doc_rag.store.queries import partition_name

log = logging.getLogger(__name__)

MIGRATION_LOCK = 0x646F6372  # "docr", as an advisory lock key
MAX_INDEXED_DIMS = 4_000
"""The most dimensions a halfvec HNSW index takes (pgvector 0.8)."""
HNSW_BUILD = {"m": 16, "ef_construction": 64}
PARTITION_LOCK_TIMEOUT_SECONDS = 3
"""How long making or dropping a partition waits for locks before it gives way to a later run."""
MIN_POSTGRES = 15
MIN_PGVECTOR = (0, 8, 0)
GOOD_PGVECTOR = (0, 8, 4)
MIGRATION_FILE = re.compile(r"(\d{4})_\w+\.sql")


def migrations() -> list[tuple[int, str]]:
    """(number, SQL) of every migration, in order."""
    folder = files("doc_rag.store").joinpath("migrations")
    found = [(MIGRATION_FILE.fullmatch(entry.name), entry) for entry in folder.iterdir()]
    return sorted((int(match[1]), entry.read_text(encoding="utf-8")) for match, entry in found if match)


def migrate(connection: psycopg.Connection[Any]) -> None:
    """Apply the migrations that are missing, one at a time, under a lock that other processes wait for.

    Raises:
        DatabaseUnavailable: Postgres or pgvector is missing or too old, or the tables are somebody else's.
        SchemaTooNew: the database has migrations that this version does not know.
    """
    _check_versions(connection)
    known = migrations()
    with connection.transaction():
        connection.execute("select pg_advisory_xact_lock(%s)", [MIGRATION_LOCK])
        connection.execute(
            "create table if not exists doc_rag_migrations"
            " (version integer primary key, applied_at timestamptz not null default now())"
        )
        row = connection.execute("select coalesce(max(version), 0) from doc_rag_migrations").fetchone()
        current = row[0] if row else 0
        if current > known[-1][0]:
            raise SchemaTooNew(
                f"The database has schema version {current}, this doc-rag-mcp knows {known[-1][0]}. "
                "Upgrade doc-rag-mcp, or point RAG_DATABASE_URL at another database."
            )
        for number, statements in known:
            if number > current:
                _apply(connection, number, statements)


def _apply(connection: psycopg.Connection[Any], number: int, statements: str) -> None:
    try:
        connection.execute(statements)
    except psycopg.errors.DuplicateTable as error:
        raise DatabaseUnavailable(
            f"The database already has a table of ours that we did not make ({error.diag.message_primary}). "
            "Give doc-rag-mcp a database of its own in RAG_DATABASE_URL."
        ) from error
    connection.execute("insert into doc_rag_migrations (version) values (%s)", [number])
    log.debug("applied migration %04d", number)


def _check_versions(connection: psycopg.Connection[Any]) -> None:
    major = connection.info.server_version // 10_000
    if major < MIN_POSTGRES:
        raise DatabaseUnavailable(f"Postgres {major} is too old; doc-rag-mcp needs {MIN_POSTGRES} or newer.")
    row = connection.execute(
        "select default_version, installed_version from pg_available_extensions where name = 'vector'"
    ).fetchone()
    if row is None:
        raise DatabaseUnavailable(
            "This Postgres has no pgvector. Install it (https://github.com/pgvector/pgvector#installation), "
            "use the image pgvector/pgvector:0.8.6-pg18-bookworm, or leave RAG_DATABASE_URL unset for the embedded one."
        )
    installed = row[1] or row[0]
    version = tuple(int(part) for part in re.findall(r"\d+", installed)[:3])
    if version < MIN_PGVECTOR:
        raise DatabaseUnavailable(
            f"pgvector {installed} is too old; doc-rag-mcp needs 0.8 or newer. Install it on the server, "
            "then run: alter extension vector update;"
        )
    if version < GOOD_PGVECTOR:
        log.warning("pgvector %s has known index defects; update it to 0.8.4 or newer", installed)


def make_partition(
    connection: psycopg.Connection[Any], generation_id: int, dims: int, text_language: str
) -> None:
    """Make a generation's partition of `doc_chunks`, with its HNSW index where its dimension has one.

    Idempotent: a half-made one of an interrupted run is finished or made anew.
    """
    if _is_attached(connection, generation_id):
        return
    partition = partition_name(generation_id)
    _check_language(connection, text_language)
    with connection.transaction():
        connection.execute(sql.SQL("drop table if exists {}").format(partition))
        connection.execute(
            sql.SQL("create table {} (like doc_chunks including all)").format(partition), prepare=False
        )
        _set_language(connection, partition, text_language)
        connection.execute(
            sql.SQL(
                "alter table {partition}"
                " add constraint {bound} check (generation_id = {id}),"
                " add constraint {vectors} check (vector_dims(embedding) = {dims} and vector_norm(embedding) > 0)"
            ).format(
                partition=partition,
                bound=sql.Identifier(f"doc_chunks_g{generation_id}_bound"),
                vectors=sql.Identifier(f"doc_chunks_g{generation_id}_vectors"),
                id=sql.Literal(generation_id),
                dims=sql.Literal(dims),
            )
        )
        _index_vectors(connection, generation_id, dims)
        connection.execute(
            "select set_config('lock_timeout', %s, true)", [f"{PARTITION_LOCK_TIMEOUT_SECONDS}s"]
        )
        try:
            connection.execute(
                sql.SQL("alter table doc_chunks attach partition {} for values in ({})").format(
                    partition, sql.Literal(generation_id)
                )
            )
        except psycopg.errors.LockNotAvailable as error:
            raise DatabaseUnavailable(
                "Another session keeps the table doc_chunks locked (maintenance, or a restore); run again later."
            ) from error


def _check_language(connection: psycopg.Connection[Any], text_language: str) -> None:
    row = connection.execute("select 1 from pg_ts_config where cfgname = %s", [text_language]).fetchone()
    if row is None:
        names = connection.execute("select cfgname from pg_ts_config order by cfgname").fetchall()
        raise DocRagError(
            f"RAG_TEXT_LANGUAGE={text_language} is no text search configuration of this Postgres; "
            f"it has {', '.join(name for (name,) in names)}."
        )


def _set_language(connection: psycopg.Connection[Any], partition: sql.Identifier, text_language: str) -> None:
    """Give the partition's tsv another text search configuration than the parent's english."""
    if text_language == "english":
        return
    if connection.info.server_version < 160_000:
        raise DatabaseUnavailable(
            f"RAG_TEXT_LANGUAGE={text_language} needs Postgres 16 or newer: on 15 a partition cannot differ in it."
        )
    connection.execute(
        sql.SQL(
            "alter table {partition} drop column tsv,"
            " add column tsv tsvector generated always as (to_tsvector({language}, context || content)) stored"
        ).format(partition=partition, language=sql.Literal(text_language))
    )
    connection.execute(sql.SQL("create index on {} using gin (tsv)").format(partition))


def _index_vectors(connection: psycopg.Connection[Any], generation_id: int, dims: int) -> None:
    if dims > MAX_INDEXED_DIMS:
        log.warning(
            "%d dimensions are more than an HNSW index takes (%d): searches scan every chunk. "
            "Set RAG_EMBED_DIM lower where the model allows it.",
            dims,
            MAX_INDEXED_DIMS,
        )
        return
    connection.execute(
        sql.SQL(
            "create index {name} on {partition} using hnsw ((embedding::halfvec({dims})) halfvec_cosine_ops)"
            " with (m = {m}, ef_construction = {ef_construction})"
        ).format(
            name=sql.Identifier(f"doc_chunks_g{generation_id}_hnsw"),
            partition=partition_name(generation_id),
            dims=sql.Literal(dims),
            m=sql.Literal(HNSW_BUILD["m"]),
            ef_construction=sql.Literal(HNSW_BUILD["ef_construction"]),
        )
    )


def _is_attached(connection: psycopg.Connection[Any], generation_id: int) -> bool:
    row = connection.execute(
        "select 1 from pg_inherits where inhrelid = to_regclass(%s)", [f"doc_chunks_g{generation_id}"]
    ).fetchone()
    return row is not None


def drop_partition(connection: psycopg.Connection[Any], generation_id: int) -> bool:
    """Drop a retired generation's partition without blocking a reader; False where one is still in the way.

    `detach concurrently` waits for the readers of before, and lets new ones pass; what it could not
    finish is finished by the next call.
    """
    partition = partition_name(generation_id)
    try:
        connection.execute(
            sql.SQL("set lock_timeout = {}").format(sql.Literal(f"{PARTITION_LOCK_TIMEOUT_SECONDS}s"))
        )
        pending = connection.execute(
            "select inhdetachpending from pg_inherits where inhrelid = to_regclass(%s)",
            [f"doc_chunks_g{generation_id}"],
        ).fetchone()
        if pending is not None:
            how = sql.SQL("finalize") if pending[0] else sql.SQL("concurrently")
            connection.execute(
                sql.SQL("alter table doc_chunks detach partition {} {}").format(partition, how)
            )
        connection.execute(sql.SQL("drop table if exists {}").format(partition))
    except (psycopg.errors.LockNotAvailable, psycopg.errors.ObjectNotInPrerequisiteState) as error:
        # The second: another partition is half detached, and its readers are not done yet.
        log.info("generation %d is dropped by a later run: %s", generation_id, error.diag.message_primary)
        return False
    finally:
        connection.execute("set lock_timeout = 0")
    return True
