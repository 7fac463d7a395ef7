"""How fast an ingest is, as ratios of one run: `make bench-ingest`, or `python -m benchmarks.ingest_speed --help`.

Ten thousand small files of one to three chunks, vectors that cost nothing (seeded, by an embedder of this
file's own). The first run is set against a bare `COPY` of the very rows that it stored, into a partition
with the same indexes; the second, which finds nothing to do, against `sha256sum` over the same files. Each
is a process of its own, so that its peak memory is its own, too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg
from pgvector.psycopg import register_vector

from doc_rag.embed.base import Stopped
from doc_rag.ingest import IngestOptions, ingest
from doc_rag.records import EmbeddedBatch, ModelIdentity, Vector
from doc_rag.settings import load_settings
from doc_rag.store import catalog, schema
from doc_rag.store.pool import Database
from tests.support.bare_copy import copy_chunks
from tests.support.postgres import create_database, drop_database, test_server

COLLECTION = "speed"
COPY_GENERATION = 1_000_000
"""The id of the generation whose partition the bare COPY fills; no ingest comes near it."""
ROWS = """
    select id, %(copy)s::integer, collection, document_id, source, chunk_index, content, context, embed_key, embedding,
           char_start, char_end, line_start, line_end, page_start, page_end, heading_path, also_on
      from doc_chunks where generation_id = %(live)s order by document_id, chunk_index
"""
FILES_A_FOLDER = 100
BATCH = 128
WORDS = ("anvil", "barge", "cedar", "delta", "ember", "flint", "grain", "harbor", "indigo", "jetty", "kiln")
MEGABYTE = 1024 if sys.platform == "linux" else 1024 * 1024
"""Units of `ru_maxrss` in a megabyte: it counts kilobytes on Linux and bytes on macOS."""


class FreeEmbedder:
    """Vectors that cost no time: by the text's hash, in the dimension of a common model."""

    identity = ModelIdentity("local", "", "free")
    document_prefix = ""
    max_input_tokens = 8_000

    def __init__(self, dims: int) -> None:
        self.dimensions = dims
        self._pool = np.random.default_rng(0).standard_normal((4_096, dims)).astype(np.float32)

    def require_key(self) -> None:
        """There is none."""

    def count_tokens(self, text: str) -> int:
        return len(text) // 4

    def resolve_dimensions(self) -> int:
        return self.dimensions

    def embed_documents(
        self, texts: Sequence[str], stopped: Stopped = lambda: False
    ) -> Generator[EmbeddedBatch, None, None]:
        for start in range(0, len(texts), BATCH):
            indexes = tuple(range(start, min(start + BATCH, len(texts))))
            yield EmbeddedBatch(indexes, np.stack([self._vector(texts[k]) for k in indexes]))

    def embed_query(self, text: str) -> Vector:
        return self._vector(text)

    def _vector(self, text: str) -> Vector:
        """The sum of a few of the pool, so that some are near each other, as texts of one subject are."""
        digest = hashlib.sha256(text.encode()).digest()
        picked = self._pool[[digest[0] % 64, int.from_bytes(digest[1:3], "big") % 4_096]]
        vector: Vector = (picked * np.array([[1.0], [0.6]], np.float32)).sum(axis=0, dtype=np.float32)
        return vector


def make_files(folder: Path, count: int, seed: int) -> None:
    """`count` Markdown files of one to three chunks, a hundred a folder."""
    source = random.Random(seed)
    for i in range(count):
        path = folder / f"{i // FILES_A_FOLDER:03}" / f"note {i:05}.md"
        path.parent.mkdir(exist_ok=True)
        parts = [f"# Note {i}"]
        for part in range(source.choice((1, 1, 2, 3))):
            words = " ".join(source.choices(WORDS, k=source.randint(40, 100)))
            parts.append(f"## Part {part}\n\nEntry {i}.{part}: {words}.")
        path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


# --- the runs, each in a process of its own -------------------------------------------------------


def child_ingest(url: str, folder: str, dims: str) -> dict[str, float]:
    """Ingest the folder; the seconds of the run without the interpreter's start."""
    settings = load_settings(
        {
            "RAG_DATABASE_URL": url,
            "RAG_DOCS_DIR": folder,
            "RAG_COLLECTION": COLLECTION,
            "RAG_EMBED_PROVIDER": "local",
            "RAG_ENV_FILE": os.devnull,
        }
    )
    database = Database(settings)
    try:
        report = ingest(database, settings, FreeEmbedder(int(dims)), IngestOptions(), tokens_used=lambda: 0)
    finally:
        database.close()
    return {"seconds": report.seconds, "new": report.new, "unchanged": report.unchanged}


def child_copy(url: str, folder: str, dims: str) -> dict[str, float]:
    """Copy the live generation's chunks into a new partition with the same indexes; the seconds that takes.

    The rows are read before the clock starts: it measures Postgres and the driver's COPY, and nothing else.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        register_vector(connection)
        live = catalog.live_generation(connection, COLLECTION)
        rows = connection.execute(ROWS, {"copy": COPY_GENERATION, "live": live.id}).fetchall()
        schema.make_partition(connection, COPY_GENERATION, int(dims), "english")
        started = time.monotonic()
        copy_chunks(connection, COPY_GENERATION, rows)
        seconds = time.monotonic() - started
        schema.drop_partition(connection, COPY_GENERATION)
    return {"seconds": seconds, "rows": len(rows)}


def child_sha256sum(url: str, folder: str, dims: str) -> dict[str, float]:
    """`sha256sum` over every file, as the shell would run it."""
    started = time.monotonic()
    command = "find . -type f -print0 | xargs -0 sha256sum > /dev/null"
    subprocess.run(["sh", "-c", command], cwd=folder, check=True)
    return {"seconds": time.monotonic() - started}


CHILDREN: dict[str, Callable[[str, str, str], dict[str, float]]] = {
    "ingest": child_ingest,
    "copy": child_copy,
    "sha256sum": child_sha256sum,
}


@dataclass(frozen=True, slots=True)
class Measured:
    """One process: what it told, its whole time, and its peak memory."""

    told: dict[str, float]
    whole_seconds: float
    peak_mb: float


def measured(name: str, url: str, folder: Path, dims: int) -> Measured:
    """Run one of `CHILDREN` in a process of its own."""
    started = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.ingest_speed", "--child", name, url, str(folder), str(dims)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    with child.stdout as output:
        told = output.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{name} ended with {child.returncode}")
    return Measured(json.loads(told), time.monotonic() - started, usage.ru_maxrss / MEGABYTE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000, metavar="N")
    parser.add_argument("--dims", type=int, default=384, metavar="N")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="whole courses; medians count")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        name, *rest = arguments.child
        print(json.dumps(CHILDREN[name](*rest)))
        return 0
    with tempfile.TemporaryDirectory(prefix="doc-rag-speed-") as folder:
        make_files(Path(folder), arguments.files, arguments.seed)
        courses = [_course(Path(folder), arguments.dims) for _ in range(arguments.repeat)]
    _print(courses, arguments.files, arguments.dims)
    return 0


@dataclass(frozen=True, slots=True)
class Course:
    """An ingest into an empty database and what it is measured against, one right after the other."""

    first: Measured
    copy: Measured
    sha256sum: Measured
    second: Measured


def _course(folder: Path, dims: int) -> Course:
    admin_url = test_server()
    url = create_database(admin_url)
    try:
        return Course(
            *(measured(name, url, folder, dims) for name in ("ingest", "copy", "sha256sum", "ingest"))
        )
    finally:
        drop_database(admin_url, url)


def _print(courses: Sequence[Course], files: int, dims: int) -> None:
    assert all(c.first.told["new"] == c.second.told["unchanged"] == files for c in courses)
    print(f"{files:,} files, {courses[0].copy.told['rows']:,.0f} chunks, {dims} dimensions\n")
    print("| | seconds | ratio | peak memory |\n|---|---|---|---|")
    print(f"| bare `COPY` of the chunks | {_seconds(c.copy for c in courses):.1f} | 1 | |")
    _row("first run", [c.first for c in courses], [c.copy for c in courses])
    print(f"| `sha256sum` over the files | {_seconds(c.sha256sum for c in courses):.2f} | 1 | |")
    _row("second run, nothing changed", [c.second for c in courses], [c.sha256sum for c in courses])
    starts = statistics.median(c.second.whole_seconds - c.second.told["seconds"] for c in courses)
    print(f"\nThe interpreter's start and end take {starts:.2f} s more.")


def _row(name: str, runs: Sequence[Measured], baselines: Sequence[Measured]) -> None:
    ratios = [run.told["seconds"] / base.told["seconds"] for run, base in zip(runs, baselines, strict=True)]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    peak = max(run.peak_mb for run in runs)
    print(f"| {name} | {_seconds(runs):.2f} | {statistics.median(ratios):.2f} ({spread}) | {peak:.0f} MB |")


def _seconds(runs: Iterable[Measured]) -> float:
    return statistics.median(run.told["seconds"] for run in runs)


if __name__ == "__main__":
    sys.exit(main())
