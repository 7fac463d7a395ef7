"""What `src/db.py` offers: the documented smoke test, a few lines of Python against the index without MCP."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from functools import cache
from typing import Literal

import numpy as np
import psycopg
from psycopg import sql

from doc_rag.embed import make_embedder
from doc_rag.embed.base import Embedder
from doc_rag.records import Vectors
from doc_rag.settings import Settings, load_settings
from doc_rag.store import catalog
from doc_rag.store.pool import Connection, Database
from doc_rag.store.queries import partition_name
from doc_rag.usage import UsageRecorder


@cache
def _settings() -> Settings:
    return load_settings()


@cache
def _database() -> Database:
    database = Database(_settings())
    atexit.register(database.close)
    return database


def embed_model() -> str:
    """The model, deployment or weights that the settings choose."""
    return get_voyage_client().identity.model


def embed_dim() -> int | None:
    """Components of its vectors; None until an answer has told it, where no table knows the model."""
    return get_voyage_client().dimensions


@cache
def get_voyage_client() -> Embedder:
    """The configured embedder, whatever its provider; the name is that of the first one there was."""
    return make_embedder(_settings(), UsageRecorder(_database()).record)


def embed_texts(
    client: Embedder, texts: Sequence[str], input_type: Literal["document", "query"] = "document"
) -> Vectors:
    """Embed texts as the server does, shape (n, dims), in the order of `texts`. Raises as the embedder does."""
    if input_type == "query":
        return np.stack([client.embed_query(text) for text in texts])
    rows: dict[int, np.ndarray] = {}
    for batch in client.embed_documents(texts):
        rows.update(zip(batch.indexes, batch.vectors, strict=True))
    return np.stack([rows[i] for i in range(len(texts))])


def get_connection() -> Connection:
    """A connection in which `doc_chunks` is a temporary view of the default collection's live rows.

    So a query on `doc_chunks` means one model and one dimension, whatever else the database holds.

    Raises:
        DatabaseUnavailable, CollectionNotFound: as their messages say.
    """
    connection = _database().connect()
    try:
        live = catalog.live_generation(connection, _settings().collection)
        connection.execute(
            sql.SQL("create temporary view doc_chunks as select * from {}").format(partition_name(live.id))
        )
        connection.autocommit = False
    except psycopg.Error:
        connection.close()
        raise
    return connection
