"""What an index must be at every instant, and the rows by which two indexes are compared."""

from __future__ import annotations

import os
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from doc_rag.embed.base import Embedder
from doc_rag.extract import Extractor
from doc_rag.prepare import Prepared, Preparer
from doc_rag.records import Generation, Source
from doc_rag.store import catalog
from doc_rag.store.queries import partition_name
from tests.ingest_safety.corpus import Corpus

Rows = list[tuple[Any, ...]]
MAX_FILE_BYTES = 100_000_000
ORPHANS = {
    "chunks without a document": """
        select c.generation_id, c.id from doc_chunks c
         where not exists (select from documents d where d.id = c.document_id and d.generation_id = c.generation_id)
    """,
    "chunks under another name than their document's": """
        select c.generation_id, c.id from doc_chunks c join documents d on d.id = c.document_id
         where c.source <> d.source
    """,
    "texts of skipped documents, or none of indexed ones": """
        select d.source from documents d left join document_texts t on t.document_id = d.id
         where (d.status = 'skipped') <> (t.document_id is null)
    """,
    "documents whose number of chunks is not theirs": """
        select d.generation_id, d.source from documents d join generations g on g.id = d.generation_id
         where g.state <> 'retired'
           and d.chunk_count <> (select count(*) from doc_chunks c where c.document_id = d.id)
    """,
    "repeats of a chunk that is not there": """
        select r.document_id, r.chunk_id from chunk_repeats r join documents d on d.id = r.document_id
         join generations g on g.id = d.generation_id
         where g.state <> 'retired' and not exists (select from doc_chunks c where c.id = r.chunk_id)
    """,
    "chunks whose other dates are not those of the documents that repeat them": """
        select c.id, c.source, c.also_on from doc_chunks c
         where c.also_on <> array(
            select distinct d.document_date from chunk_repeats r join documents d on d.id = r.document_id
             where r.chunk_id = c.id order by 1)
    """,
    "partitions without a generation": """
        select relname from pg_class where relname ~ '^doc_chunks_g[0-9]+$' and relkind = 'r'
           and substr(relname, 13)::integer not in (select id from generations)
    """,
    "generations in use without an attached partition": """
        select id from generations where state <> 'retired'
           and to_regclass('doc_chunks_g' || id) not in (select inhrelid from pg_inherits)
    """,
    "more than one chunk at one place": """
        select document_id, chunk_index from doc_chunks group by 1, 2 having count(*) > 1
    """,
}
HELD = """
    select d.source, c.chunk_index, c.content, c.char_start, c.char_end, c.line_start, c.line_end, c.page_start,
           c.page_end, c.heading_path, c.context, encode(c.embed_key, 'hex'), c.also_on, c.embedding::text
      from {partition} c join documents d on d.id = c.document_id where d.generation_id = {id} order by 1, 2
"""
REPEATED = """
    select d.source, r.chunk_index, c.content, r.char_start, r.char_end, r.line_start, r.line_end, r.page_start,
           r.page_end, c.heading_path, h.source, c.chunk_index
      from chunk_repeats r join documents d on d.id = r.document_id
      join {partition} c on c.id = r.chunk_id join documents h on h.id = c.document_id
     where d.generation_id = {id} order by 1, 2
"""
DOCUMENTS = """
    select d.source, d.status, d.skip_reason, d.content_hash, d.title, d.document_date, d.series, d.pages, t.text
      from documents d left join document_texts t on t.document_id = d.id where d.generation_id = {id} order by 1
"""
TOTALS = """
    select chunk_count from generations where id = {id}
"""
PLACE_COLUMNS = 10
"""The first columns of HELD and REPEATED: source, index, content, spans and heading path."""


@dataclass(frozen=True, slots=True)
class Contents:
    """All of a collection's live generation that does not depend on when it was written."""

    documents: Rows
    held: Rows
    repeated: Rows
    totals: Rows


def contents(connection: psycopg.Connection[Any], generation: Generation) -> Contents:
    """The rows of a generation, without ids and moments."""
    names = {"partition": partition_name(generation.id), "id": sql.Literal(generation.id)}
    return Contents(
        *(
            connection.execute(sql.SQL(statement).format(**names)).fetchall()
            for statement in (DOCUMENTS, HELD, REPEATED, TOTALS)
        )
    )


def differences(one: Contents, other: Contents) -> list[str]:
    """In which rows two indexes differ, in words; empty where they are the same."""
    found = []
    for kind in Contents.__dataclass_fields__:
        first, second = (Counter(map(repr, getattr(each, kind))) for each in (one, other))
        found += [f"{kind}: only in the first {row[:300]}" for row in first - second]
        found += [f"{kind}: only in the second {row[:300]}" for row in second - first]
    return found


class Checker:
    """Checks an index against the documents that it was made of."""

    def __init__(self, corpus: Corpus, embedder: Embedder) -> None:
        self._corpus = corpus
        self._embedder = embedder
        self._extractor = Extractor(pdf_timeout_seconds=60, pdf_memory_mb=1024)
        self._prepared: dict[tuple[Any, ...], Prepared] = {}

    def close(self) -> None:
        self._extractor.close()

    def problems(self, connection: psycopg.Connection[Any], collection: str) -> list[str]:
        """Everything that is wrong with the database at this instant; empty where nothing is."""
        found = []
        with connection.transaction():
            connection.execute("set transaction isolation level repeatable read, read only")
            for problem, statement in ORPHANS.items():
                found += [f"{problem}: {row}" for row in connection.execute(statement, prepare=False)]
            for state in ("live", "building"):
                generation = catalog.generation(connection, collection, state)
                if generation:
                    found += self._not_one_version(connection, generation)
        return found

    def _not_one_version(self, connection: psycopg.Connection[Any], generation: Generation) -> list[str]:
        """The documents whose text, spans and chunks are not those of one version that was on disk."""
        stored = contents(connection, generation)
        places: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        for row in (*stored.held, *stored.repeated):
            places[row[0]].append(tuple(row[1:PLACE_COLUMNS]))
        found = []
        for source, status, _, content_hash, *_, text in stored.documents:
            if bytes(content_hash) not in self._corpus.versions.get(source, ()):
                found.append(f"{source}: its hash is of no version that ever was on disk")
                continue
            expected = self._version(source, bytes(content_hash), generation)
            assert expected.document is not None
            if (status, text) != (expected.document.status, expected.document.text):
                found.append(f"{source}: {status}, and its text is not that of its version")
            wanted = [
                (
                    chunk.index, chunk.content, chunk.char_start, chunk.char_end, chunk.line_start, chunk.line_end,
                    chunk.page_start, chunk.page_end, list(chunk.heading_path),
                )
                for chunk in expected.chunks
            ]  # fmt: skip
            if sorted(places[source], key=lambda place: place[0]) != wanted:
                found.append(f"{source}: its chunks are not those of its version")
            found += [
                f"{source}: chunk {index} is not at its place"
                for index, content, start, end, *_ in places[source]
                if text[start:end] != content
            ]
        return found

    def _version(self, source: str, content_hash: bytes, generation: Generation) -> Prepared:
        key = (source, content_hash, generation.settings)
        if key not in self._prepared:
            preparer = Preparer(
                self._extractor, self._embedder, generation.settings, "", MAX_FILE_BYTES, states={}
            )
            with tempfile.NamedTemporaryFile(suffix=os.path.splitext(source)[1]) as file:
                file.write(self._corpus.contents[content_hash])
                file.flush()
                self._prepared[key] = preparer.prepare(Source(Path(file.name), source, source.encode(), 0, 0))
        return self._prepared[key]
