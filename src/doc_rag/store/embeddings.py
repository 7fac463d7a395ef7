"""Vectors that are paid for: looked up by `embed_key` before any call, staged until their chunk is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import numpy as np
import psycopg
from pgvector import Vector as PgVector

from doc_rag.records import Generation, Vector
from doc_rag.store.pool import Connection
from doc_rag.store.queries import on_partition, query


def find(
    connection: Connection, keys: Iterable[bytes], target: Generation, others: Sequence[int]
) -> dict[bytes, Vector]:
    """The vectors of those `keys` that are stored or staged.

    Looks in the target generation, then in what was staged, then in the generations `others`. A
    forced rebuild looks only in itself and in what was staged since it began.
    """
    missing = set(keys)
    found: dict[bytes, Vector] = {}
    since = _created(connection, target.id) if target.forced else None

    def take(rows: Iterable[tuple[bytes, PgVector]]) -> None:
        for key, vector in rows:
            found[bytes(key)] = np.asarray(vector.to_numpy(), dtype=np.float32)
            missing.discard(bytes(key))

    for generation_id in [target.id, None, *([] if target.forced else others)]:
        if not missing:
            break
        parameters = {"keys": list(missing), "since": since}
        if generation_id is None:
            take(connection.execute(query("embeddings_staged"), parameters, binary=True))
            continue
        try:
            take(
                connection.execute(on_partition("embeddings_stored", generation_id), parameters, binary=True)
            )
        except psycopg.errors.UndefinedTable:
            continue  # dropped by another process since the generations were listed
    return found


def stage(connection: Connection, vectors: Mapping[bytes, Vector]) -> None:
    """Keep the vectors of one provider answer until their chunks are stored."""
    # In one order, whoever stages: two runs that share texts would else wait for each other.
    keys = sorted(vectors)
    connection.execute(
        query("embeddings_stage"), {"keys": keys, "embeddings": [PgVector(vectors[key]) for key in keys]}
    )


def unstage(connection: Connection, keys: Sequence[bytes]) -> None:
    """Forget staged vectors whose chunks are stored."""
    connection.execute(query("embeddings_unstage"), {"keys": list(keys)})


def expire(connection: Connection) -> None:
    """Forget what was staged a month ago and never stored."""
    connection.execute(query("embeddings_expire"))


def _created(connection: Connection, generation_id: int) -> datetime | None:
    row = connection.execute(query("generation_created"), {"generation_id": generation_id}).fetchone()
    return row[0] if row else None
