"""What tokens cost, from one dated table (embed/prices.toml) and the user's own on top of it."""

from __future__ import annotations

import math
import tomllib
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from doc_rag.errors import SettingsError

FREE_PROVIDERS = ("local",)


def price_usd(provider: str, model: str, tokens: int, prices_file: Path | None) -> float | None:
    """US dollars for `tokens` at list price, None where the price is not known. `local` costs nothing.

    `prices_file` is RAG_PRICES_FILE: entries in it win over the shipped table.

    Raises:
        SettingsError: the file is missing or is no such table.
    """
    if provider in FREE_PROVIDERS:
        return 0.0
    own = _own(prices_file, prices_file.stat().st_mtime_ns if prices_file and prices_file.exists() else 0)
    for table in (own, _shipped()):
        price = table.get(provider, {}).get(model)
        if price is not None:
            return float(price) * tokens / 1_000_000
    return None


def prices_date() -> str:
    """The day the shipped prices were read, ISO 8601."""
    return str(_shipped()["date"])


@lru_cache(maxsize=1)
def _shipped() -> dict[str, Any]:
    return tomllib.loads((resources.files("doc_rag.embed") / "prices.toml").read_text(encoding="utf-8"))


@lru_cache(maxsize=4)
def _own(path: Path | None, mtime_ns: int) -> dict[str, dict[str, float]]:
    """The user's table by provider; `mtime_ns` makes an edited file a new one."""
    if path is None:
        return {}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"RAG_PRICES_FILE={path} cannot be read: {error}.") from None
    prices = {name: entries for name, entries in table.items() if isinstance(entries, dict)}
    for provider, entries in prices.items():
        for model, price in entries.items():
            is_number = isinstance(price, int | float) and not isinstance(price, bool)
            if not is_number or not math.isfinite(price) or price < 0:
                raise SettingsError(
                    f"RAG_PRICES_FILE={path}: the price of {provider} {model} must be US dollars for a million "
                    f"tokens, not {price!r}."
                )
    return prices
