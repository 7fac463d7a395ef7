"""Prices come from one dated table, the user's file wins, and what is unknown is said to be."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from doc_rag.embed.models import DEFAULT_MODELS
from doc_rag.errors import SettingsError
from doc_rag.prices import price_usd, prices_date


def test_known_models_have_a_price_by_the_million_tokens() -> None:
    assert price_usd("voyage", "voyage-4-large", 1_000_000, None) == pytest.approx(0.12)
    assert price_usd("openai", "text-embedding-3-small", 500_000, None) == pytest.approx(0.01)
    assert price_usd("voyage", "rerank-2.5", 2_000_000, None) == pytest.approx(0.10)
    for provider, model in DEFAULT_MODELS.items():
        assert price_usd(provider, model, 1, None), "a default model's price is known"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", prices_date())


def test_local_is_free_and_an_unknown_price_is_none() -> None:
    assert price_usd("local", "anything@1234", 10**9, None) == 0.0
    assert price_usd("openai", "nomic-embed-text", 1_000, None) is None
    assert price_usd("azure-openai", "our-embeddings", 1_000, None) is None
    assert price_usd("nobody", "m", 1_000, None) is None


def test_the_users_file_wins_and_is_read_again_when_edited(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('[azure-openai]\n"our-embeddings" = 0.02\n[voyage]\n"voyage-4-large" = 0\n')
    assert price_usd("azure-openai", "our-embeddings", 1_000_000, prices) == pytest.approx(0.02)
    assert price_usd("voyage", "voyage-4-large", 1_000_000, prices) == 0.0
    assert price_usd("voyage", "voyage-4", 1_000_000, prices) == pytest.approx(0.06)
    prices.write_text('[azure-openai]\n"our-embeddings" = 0.03\n')
    os.utime(prices, ns=(1, 1))
    assert price_usd("azure-openai", "our-embeddings", 1_000_000, prices) == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[voyage\n", "RAG_PRICES_FILE=.* cannot be read"),
        ('[voyage]\n"m" = "cheap"\n', "the price of voyage m must be US dollars"),
        ('[voyage]\n"m" = -1\n', "the price of voyage m must be US dollars"),
        ('[voyage]\n"m" = nan\n', "the price of voyage m must be US dollars"),
        ('[voyage]\n"m" = true\n', "the price of voyage m must be US dollars"),
    ],
)
def test_a_file_that_is_no_table_of_prices_is_refused(tmp_path: Path, text: str, said: str) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text(text)
    with pytest.raises(SettingsError, match=said):
        price_usd("voyage", "m", 1, prices)
    with pytest.raises(SettingsError, match="cannot be read"):
        price_usd("voyage", "m", 1, tmp_path / "absent.toml")
