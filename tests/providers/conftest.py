"""The three servers as fixtures, and a run that collects every vector by its text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from doc_rag.embed import Embedder, make_embedder, retry
from doc_rag.records import GenerationSettings, UsageEvent
from tests.providers.servers import AzureServer, OpenAIServer, VoyageServer
from tests.providers.wire import ProviderServer

SERVERS = {"voyage": VoyageServer, "openai": OpenAIServer, "azure-openai": AzureServer}


@pytest.fixture(autouse=True)
def _short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first wait is 20 ms: the course of a backoff is tested by itself, in tests/unit."""
    monkeypatch.setattr(retry, "FIRST_WAIT_SECONDS", 0.02)


@pytest.fixture
def voyage() -> Iterator[VoyageServer]:
    with VoyageServer() as server:
        yield server


@pytest.fixture
def openai() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


@pytest.fixture
def azure() -> Iterator[AzureServer]:
    with AzureServer() as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[OpenAIServer]:
    """A server such as Ollama: no key, a model nobody has heard of, eight dimensions."""
    with OpenAIServer(key=None, models={"tiny-embed": 8}) as server:
        yield server


@pytest.fixture(params=sorted(SERVERS))
def any_server(request: pytest.FixtureRequest) -> Iterator[ProviderServer]:
    with SERVERS[request.param]() as server:
        yield server


@dataclass
class Run:
    """An embedder on a server, what it was tallied, and what it yielded."""

    embedder: Embedder
    usage: list[UsageEvent]
    long_inputs: list[int] = field(default_factory=list)

    def documents(self, texts: list[str]) -> np.ndarray[Any, Any]:
        """Vectors in the order of `texts`; every index must have come once."""
        rows: dict[int, Any] = {}
        for batch in self.embedder.embed_documents(texts):
            self.long_inputs += batch.long_inputs
            for index, vector in zip(batch.indexes, batch.vectors, strict=True):
                assert index not in rows
                rows[index] = vector
        return np.array([rows[k] for k in range(len(texts))])

    @property
    def tokens(self) -> int:
        return sum(event.tokens or 0 for event in self.usage)

    @property
    def unknown_calls(self) -> int:
        return sum(event.tokens is None for event in self.usage)


def start(server: ProviderServer, like: GenerationSettings | None = None, **variables: str) -> Run:
    usage: list[UsageEvent] = []
    return Run(make_embedder(server.settings(**variables), usage.append, like=like), usage)
