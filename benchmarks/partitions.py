"""Why a collection has a partition of its own: `make bench-partitions`.

The same chunks in one table with one HNSW index and `where collection = ...`, and in a partition with
its own index each. Vectors are a seeded mixture of 200 clusters; random ones are no test of recall.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from pgvector import Vector as PgVector
from psycopg import sql

from doc_rag.records import Generation, Vectors
from doc_rag.settings import load_settings
from doc_rag.store import searching
from doc_rag.store.pool import Connection, Database
from doc_rag.store.queries import partition_name
from tests.support.bare_copy import fill_partition
from tests.support.corpora import SETTINGS, make_collection
from tests.support.vectors import clustered

DIMS = 384
SIZES = {"large": 20_000, "medium": 2_000, "small": 300}
OTHERS = 44
OTHER_CHUNKS = 600
QUERIES = 100
LIMIT = 10

FLAT = """
create table flat (id text, collection text, embedding vector(384));
"""
FLAT_INDEXES = """
create index on flat using hnsw ((embedding::halfvec(384)) halfvec_cosine_ops);
create index on flat (collection);
analyze flat;
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=QUERIES)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o711)  # an embedded Postgres of root's runs as another user
        environ = {"RAG_DATA_DIR": str(Path(scratch) / "data"), "RAG_ENV_FILE": os.devnull}
        database = Database(
            load_settings(environ | {"RAG_DATABASE_URL": os.environ.get("RAG_DATABASE_URL", "")})
        )
        try:
            _run(database, arguments.queries)
        finally:
            database.close()
    return 0


def _run(database: Database, queries: int) -> None:
    sizes = SIZES | {f"other {i}": OTHER_CHUNKS for i in range(OTHERS)}
    points = {name: clustered(size + queries, DIMS, seed=i) for i, (name, size) in enumerate(sizes.items())}
    generations = _fill(database, points, queries)
    print("| collection of | one table: p50 ms | recall@10 | a partition: p50 ms | recall@10 | ratio |")
    print("|---|---|---|---|---|---|")
    with database.connection() as connection:
        for name, size in SIZES.items():
            generation = generations[name]
            asked = points[name][size:]
            flat_ms, flat_recall = _measured(points[name][:size], asked, _flat(connection, name))
            own_ms, own_recall = _measured(points[name][:size], asked, _partitioned(connection, generation))
            print(
                f"| {size:,} chunks | {flat_ms:.2f} | {flat_recall:.3f} | {own_ms:.2f} | {own_recall:.3f} |"
                f" {flat_ms / own_ms:.1f} |"
            )


def _fill(database: Database, points: dict[str, Vectors], queries: int) -> dict[str, Generation]:
    settings = replace(SETTINGS, dims=DIMS)
    generations = {}
    with database.connection() as connection:
        connection.execute(FLAT)
    for name, vectors in points.items():
        generations[name] = make_collection(database, name, settings)
        chunks = vectors[: len(vectors) - queries]
        with database.connection() as connection:
            fill_partition(connection, generations[name].id, name, chunks)
            connection.execute(
                sql.SQL("insert into flat select id, collection, embedding from {}").format(
                    partition_name(generations[name].id)
                )
            )
    with database.own_connection() as connection:
        connection.execute("set maintenance_work_mem = '512MB'")
        connection.execute(FLAT_INDEXES)
    return generations


Ask = Callable[[np.ndarray], list[str]]


def _flat(connection: Connection, name: str) -> Ask:
    def ask(vector: np.ndarray) -> list[str]:
        with connection.transaction():
            connection.execute(
                "select set_config('hnsw.ef_search', '100', true),"
                " set_config('hnsw.iterative_scan', 'strict_order', true)"
            )
            rows = connection.execute(
                "with candidates as materialized (select id, embedding from flat where collection = %(name)s"
                " order by embedding::halfvec(384) <=> %(vector)s::vector::halfvec(384) limit 40)"
                " select id from candidates order by embedding <=> %(vector)s limit 10",
                {"name": name, "vector": PgVector(vector)},
                prepare=False,
            )
            return [chunk_id for (chunk_id,) in rows]

    return ask


def _partitioned(connection: Connection, generation: Generation) -> Ask:
    def ask(vector: np.ndarray) -> list[str]:
        with connection.transaction():
            return [chunk_id for chunk_id, _ in searching.by_vector(connection, generation, vector, LIMIT)]

    return ask


def _measured(chunks: Vectors, asked: Vectors, ask: Ask) -> tuple[float, float]:
    """The median milliseconds of a query, and recall@10 against an exact scan."""
    milliseconds, found = [], 0
    for vector in asked:
        started = time.perf_counter()
        ids = ask(vector)
        milliseconds.append((time.perf_counter() - started) * 1000)
        exact = np.argsort(-(chunks @ vector), kind="stable")[:LIMIT]
        found += len({f"{i:05}" for i in exact} & {chunk_id[-5:] for chunk_id in ids})
    return statistics.median(milliseconds), found / (LIMIT * len(asked))


if __name__ == "__main__":
    sys.exit(main())
