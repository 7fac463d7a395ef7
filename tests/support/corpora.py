"""Collections made through the store alone, for tests that need chunks and no files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from doc_rag.records import Chunk, Generation, GenerationSettings, Vectors
from doc_rag.store import catalog, documents
from doc_rag.store.documents import NewChunks, NewDocument
from doc_rag.store.pool import Database
from doc_rag.store.writing import writing

SETTINGS = GenerationSettings("local", "", "test-model", 8, "", 800, 100, 1, "english")


def make_collection(database: Database, name: str, settings: GenerationSettings = SETTINGS) -> Generation:
    """An empty live collection."""
    with writing(database, name, "test") as writer:
        made = catalog.begin_generation(writer.connection, name, writer.collection_id, settings, forced=False)
        catalog.make_live(writer.connection, made.id, writer.collection_id)
        return replace(made, state="live")


def add_document(
    database: Database,
    generation: Generation,
    source: str,
    texts: Sequence[str],
    vectors: Vectors | None = None,
) -> None:
    """Store a document of the given chunks; vectors default to seeded ones."""
    if vectors is None:
        seed = int.from_bytes(hashlib.sha256(source.encode()).digest()[:4], "big")
        vectors = (
            np.random.default_rng(seed).normal(size=(len(texts), generation.settings.dims)).astype(np.float32)
        )
    text, chunks = "", []
    for index, content in enumerate(texts):
        chunks.append(Chunk(index, content, len(text), len(text) + len(content), index + 1, index + 1))
        text += content + "\n"
    digest = hashlib.sha256(text.encode()).digest()
    document = NewDocument(source, source.encode(), "indexed", digest, 1, len(text), text=text)
    keys = [hashlib.sha256(f"{generation.settings}{content}".encode()).digest() for content in texts]
    with writing(database, generation.collection, "test") as writer:
        documents.replace(
            writer.connection, generation, document, NewChunks(chunks, [""] * len(texts), keys, vectors)
        )
