"""The table of known models, and the careful limits of those that are not in it."""

from __future__ import annotations

import pytest

from doc_rag.embed.models import DEFAULT_MODELS, openai_model, voyage_model
from doc_rag.errors import SettingsError


@pytest.mark.parametrize(
    ("name", "dims", "batch_tokens"),
    [
        ("voyage-4-large", 1024, 120_000),
        ("voyage-4", 1024, 320_000),
        ("voyage-4-lite", 1024, 1_000_000),
        ("voyage-code-3", 1024, 120_000),
        ("voyage-3.5", 1024, 320_000),
    ],
)
def test_voyage_batches_are_those_of_the_models_class(name: str, dims: int, batch_tokens: int) -> None:
    model = voyage_model(name)
    assert (model.default_dims, model.max_batch_tokens, model.max_batch_items) == (dims, batch_tokens, 1_000)
    assert model.max_input_tokens == 32_000


def test_openai_models_and_their_dimensions() -> None:
    small, large = openai_model("text-embedding-3-small"), openai_model("text-embedding-3-large")
    assert (small.default_dims, large.default_dims) == (1536, 3072)
    assert (small.max_input_tokens, small.max_batch_tokens, small.max_batch_items) == (8_191, 300_000, 2_048)
    for dims in (1, 512, 3072, None):
        large.check_dims(dims)
    with pytest.raises(SettingsError, match=r"RAG_EMBED_DIM=3073 is not a dimension of .*has 1 to 3072"):
        large.check_dims(3073)
    with pytest.raises(SettingsError, match="which has 1536"):
        openai_model("text-embedding-ada-002").check_dims(512)


def test_unknown_models_take_any_dimension_and_get_careful_limits() -> None:
    model = voyage_model("voyage-9")
    assert not model.is_known
    model.check_dims(333)
    assert model.max_batch_tokens == 120_000
    own = openai_model("nomic-embed-text", self_hosted=True)
    assert (own.default_dims, own.max_batch_items) == (None, 32)
    assert openai_model("text-embedding-3-small", self_hosted=True).default_dims == 1536


def test_the_default_models_are_in_the_table() -> None:
    assert voyage_model(DEFAULT_MODELS["voyage"]).is_known
    assert DEFAULT_MODELS["voyage"] == "voyage-4-large"
    assert openai_model(DEFAULT_MODELS["openai"]).is_known
