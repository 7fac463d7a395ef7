"""What names a vector, and that asking for an embedder costs nothing."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from doc_rag.embed import embed_key
from doc_rag.records import ModelIdentity

IDENTITY = ModelIdentity("voyage", "api.voyageai.com", "voyage-4-large")


def test_a_key_is_sha256_over_length_prefixed_fields() -> None:
    fields = [b"voyage", b"api.voyageai.com", b"voyage-4-large", b"1024", b"document", "Größe".encode()]
    expected = b"doc-rag embed_key 1\n" + b"".join(len(f).to_bytes(8, "big") + f for f in fields)
    # Stored keys are looked up for years: a change here pays for every text again.
    assert embed_key(IDENTITY, 1024, "document", "Größe") == hashlib.sha256(expected).digest()


def test_each_field_counts() -> None:
    keys = [
        embed_key(IDENTITY, 1024, "document", "text"),
        embed_key(ModelIdentity("openai", IDENTITY.endpoint, IDENTITY.model), 1024, "document", "text"),
        embed_key(ModelIdentity("voyage", "elsewhere", IDENTITY.model), 1024, "document", "text"),
        embed_key(ModelIdentity("voyage", IDENTITY.endpoint, "voyage-4"), 1024, "document", "text"),
        embed_key(IDENTITY, 512, "document", "text"),
        embed_key(IDENTITY, 1024, "query", "text"),
        embed_key(IDENTITY, 1024, "document", "text "),
    ]
    assert all(one != other for one, other in combinations(keys, 2))
    assert {len(key) for key in keys} == {32}


FIELDS = st.tuples(*[st.text(max_size=6)] * 3, st.integers(1, 99), *[st.text(max_size=6)] * 2)


@given(FIELDS, FIELDS)
def test_different_tuples_have_different_keys(
    one: tuple[str, str, str, int, str, str], other: tuple[str, str, str, int, str, str]
) -> None:
    def key(fields: tuple[str, str, str, int, str, str]) -> bytes:
        return embed_key(ModelIdentity(*fields[:3]), *fields[3:])

    assert (key(one) == key(other)) == (one == other)


def test_fields_that_run_into_each_other_are_told_apart() -> None:
    assert embed_key(ModelIdentity("a", "b", ""), 1, "", "") != embed_key(
        ModelIdentity("a", "", "b"), 1, "", ""
    )
    assert embed_key(IDENTITY, 1, "query", "x") != embed_key(IDENTITY, 1, "quer", "yx")
    assert len(embed_key(IDENTITY, 1, "query", "half a pair \ud83d")) == 32


def test_making_embedders_and_rerankers_imports_nothing_heavy() -> None:
    program = """
import os, sys
from doc_rag.settings import load_settings
from doc_rag.embed import make_embedder
import doc_rag.prices, doc_rag.rerank
first = [m for m in ("numpy", "requests", "httpx2", "pydantic") if m in sys.modules]
assert not first, first
for provider in ("voyage", "openai", "azure-openai", "local"):
    settings = load_settings({
        "RAG_EMBED_PROVIDER": provider, "RAG_COLLECTION": "c", "RAG_ENV_FILE": os.devnull,
        "RAG_RERANK_MODEL": "rerank-2.5", "RAG_ALLOW_CROSS_PROVIDER_RERANK": "true",
    })
    embedder = make_embedder(settings, print)
    embedder.identity, embedder.dimensions, embedder.max_input_tokens, embedder.document_prefix
    doc_rag.rerank.make_reranker(settings, print)
heavy = [m for m in ("voyageai", "openai", "tokenizers", "safetensors", "threadpoolctl") if m in sys.modules]
assert not heavy, heavy
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
