"""What `RemoteEmbedder` asks of a provider: one call, made through the provider's own SDK."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from doc_rag.embed.failures import CallFailed
from doc_rag.errors import MissingKeyError, SettingsError
from doc_rag.records import ModelIdentity
from doc_rag.setting_values import Secret

if TYPE_CHECKING:
    from doc_rag.embed.answers import Answer

CONNECT_SECONDS = 10.0


class EmbeddingApi(Protocol):
    """One provider with its endpoint, model and key. Safe to use from several threads at once."""

    @property
    def identity(self) -> ModelIdentity: ...

    @property
    def is_self_hosted(self) -> bool:
        """Whether it is a server of the user's own, which may be slow and load its model at the first call."""

    def require_key(self) -> None:
        """Raise MissingKeyError, naming the variables, where the settings lack what a call needs."""

    def embed(
        self, texts: Sequence[str], *, input_type: str, dimensions: int | None, timeout_seconds: float
    ) -> Answer:
        """One HTTP call, never repeated here. `input_type` is "document" or "query". Raises CallFailed."""

    def remedy(self, failure: CallFailed) -> str:
        """What to do about a refusal: one sentence that names the variable."""


@dataclass(frozen=True, slots=True)
class Rerankings:
    """A whole rerank answer: (position, relevance score) as they came, and the tokens billed."""

    results: tuple[tuple[int, float], ...]
    tokens: int | None


def check_key(name: str, key: Secret) -> None:
    """Raise MissingKeyError where `key` cannot be sent in a header: a slip in copying, not a wrong key."""
    value = key.reveal()
    if not value.isascii() or not value.isprintable() or " " in value:
        raise MissingKeyError(
            f"{name} holds characters that no key has (a space, a line end, a typographic quote). Copy it again."
        )


def quiet(*loggers: str) -> None:
    """Keep third-party loggers at WARNING, unless somebody has set a level of their own."""
    for name in loggers:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)


def host_of(variable: str, url: str | None, default: str = "") -> str:
    """host[:port] of an address, without the user and password it may hold; `default` where there is none.

    The scheme's own port is left out, so that two spellings of one address are one endpoint.

    Raises:
        SettingsError: the port is no number; `variable` says where.
    """
    parts = urlsplit(url or "")
    if not parts.hostname:
        return default
    try:
        port = parts.port
    except ValueError:
        raise SettingsError(f"{variable} has a port that is no number from 0 to 65535.") from None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return host if port in (None, {"http": 80, "https": 443}.get(parts.scheme)) else f"{host}:{port}"
