"""The `local` provider: a BERT sentence encoder on this machine's processor. No key, no network.

Many texts get one thread a core, each with its own texts, and BLAS is single-threaded throughout the process:
its own threads gain less on matrices of this size and spin, waiting for each other, where cores are busy.
Measured on 2 cores: 20 texts of 200 words a second with BLAS's threads, 22 this way; beside other load 3
against 10, and a query's median 350 ms against 30 ms. Alone a query takes 10 ms instead of 7.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from doc_rag.embed import weights
from doc_rag.embed.base import RecordUsage, Stopped
from doc_rag.embed.bert import Bert, TokenIds
from doc_rag.errors import Interrupted, SettingsError
from doc_rag.records import EmbeddedBatch, ModelIdentity, UsageEvent, Vector, Vectors

if TYPE_CHECKING:
    from tokenizers import Tokenizer

log = logging.getLogger(__name__)

PROVIDER = "local"
PASS_TOKENS = 1_024
"""Tokens in one forward pass: small matrices stay in cache, and a stop is heard after a short while."""
MAX_THREADS = 8
STOP_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class _Model:
    """Weights and tokenizer of one folder, shared by every embedder of the process."""

    bert: Bert
    tokenizer: Tokenizer
    folder: weights.Folder

    def token_ids(self, text: str) -> TokenIds:
        """Token ids of `text`, with its first and last special token."""
        return np.array(self.tokenizer.encode(text.lower() if self.folder.lower_case else text).ids)

    def parts(self, text: str, truncate_long: bool) -> tuple[list[TokenIds], bool]:
        """Token ids of `text` in even parts that fit the model (or the first that fits), and if it was too long."""
        ids, fits = self.token_ids(text), self.folder.max_tokens
        if len(ids) <= fits:
            return [ids], False
        first, inner, last = ids[:1], ids[1:-1], ids[-1:]
        if truncate_long:
            return [np.concatenate((first, inner[: fits - 2], last))], True
        count = -(-len(inner) // (fits - 2))
        return [np.concatenate((first, part, last)) for part in np.array_split(inner, count)], True

    def pooled(self, parts: Sequence[TokenIds]) -> Vectors:
        """One vector a part, a few parts at a time so that a huge text needs no huge matrix."""
        step = max(1, PASS_TOKENS // self.folder.max_tokens)
        return np.concatenate(
            [self.bert.pooled(parts[k : k + step], self.folder.pooling) for k in range(0, len(parts), step)]
        )


class LocalEmbedder:
    """Embeds by the shipped all-MiniLM-L6-v2, or by the BERT folder given. Construction reads nothing.

    `expected_model` is the model recorded with a generation: another folder's weights are refused.
    """

    def __init__(
        self,
        record_usage: RecordUsage,
        *,
        folder: Path | None = None,
        query_prefix: str = "",
        document_prefix: str = "",
        truncate_long: bool = False,
        expected_model: str | None = None,
        expected_dimensions: int | None = None,
    ) -> None:
        self._record_usage = record_usage
        self._path = folder
        self._query_prefix = query_prefix
        self._document_prefix = document_prefix
        self._truncate_long = truncate_long
        self._expected_model = expected_model
        self._expected_dimensions = expected_dimensions

    @cached_property
    def identity(self) -> ModelIdentity:
        if self._path is None:
            return ModelIdentity(PROVIDER, "", weights.SHIPPED_MODEL)
        # The name is for people; the hash makes other weights in the same folder another model.
        name = f"{self._folder.path.name}@{weights.folder_hash(self._folder.path)[:16]}"
        if self._expected_model not in (None, name):
            raise SettingsError(
                f"The collection was embedded by the local model {self._expected_model}; RAG_LOCAL_MODEL_DIR="
                f"{self._path} holds {name}. Point it at the folder with those weights, or ingest again."
            )
        return ModelIdentity(PROVIDER, "", name)

    @cached_property
    def _folder(self) -> weights.Folder:
        return weights.read_folder(self._path or weights.shipped_folder())

    @cached_property
    def dimensions(self) -> int:
        found = weights.SHIPPED_DIMS if self._path is None else self._folder.shape.hidden_size
        if self._expected_dimensions not in (None, found):
            raise SettingsError(
                f"RAG_EMBED_DIM={self._expected_dimensions}, but the local model has {found} dimensions. "
                "Unset RAG_EMBED_DIM."
            )
        return found

    @property
    def document_prefix(self) -> str:
        return self._document_prefix

    @cached_property
    def max_input_tokens(self) -> int:
        return weights.SHIPPED_MAX_TOKENS if self._path is None else self._folder.max_tokens

    def require_key(self) -> None:
        """There is no key to miss."""

    def count_tokens(self, text: str) -> int:
        """Tokens of `text`, its two special tokens included."""
        return len(self._model().token_ids(text))

    def resolve_dimensions(self) -> int:
        return self.dimensions

    def embed_documents(
        self, texts: Sequence[str], stopped: Stopped = lambda: False
    ) -> Generator[EmbeddedBatch, None, None]:
        """Embed in passes of at most PASS_TOKENS tokens (a longer text is a pass of its own)."""
        if not texts:
            return
        model, threads = self._model(), _threads()
        passes = _Passes(model, [self._document_prefix + text for text in texts], self._truncate_long)
        tokens = calls = 0
        running: set[Future[tuple[EmbeddedBatch, int]]] = set()
        with ThreadPoolExecutor(threads, "embed-local") as pool:
            try:
                running = {pool.submit(passes.run_next) for _ in range(threads)}
                while running:
                    done, running = wait(running, STOP_POLL_SECONDS, FIRST_COMPLETED)
                    if stopped():
                        raise Interrupted("Stopped while embedding.")
                    for future in done:
                        batch, batch_tokens = future.result()
                        if batch.indexes:
                            tokens, calls = tokens + batch_tokens, calls + 1
                            running.add(pool.submit(passes.run_next))
                            yield batch
            finally:
                passes.end()
                if calls:
                    self._record("embed_document", tokens, calls)

    def embed_query(self, text: str) -> Vector:
        vectors, _, tokens = _embed(self._model(), [self._query_prefix + text], self._truncate_long)
        self._record("embed_query", tokens, 1)
        vector: Vector = vectors[0]
        return vector

    def _model(self) -> _Model:
        # Touches identity and dimensions first, so that other weights than the recorded are refused.
        _ = self.identity, self.dimensions
        return _load(self._folder.path, check=self._path is None)

    def _record(self, operation: str, tokens: int, calls: int) -> None:
        self._record_usage(UsageEvent(PROVIDER, self.identity.model, operation, tokens, calls))


class _Passes:
    """Hands out the texts in passes; each thread tokenises and embeds the pass it took."""

    def __init__(self, model: _Model, texts: Sequence[str], truncate_long: bool) -> None:
        self._model = model
        self._texts = texts
        self._truncate_long = truncate_long
        self._next = 0
        self._lock = threading.Lock()

    def end(self) -> None:
        """No further pass begins."""
        with self._lock:
            self._next = len(self._texts)

    def run_next(self) -> tuple[EmbeddedBatch, int]:
        """Embed the next pass. Returns it with its tokens, an empty batch when none is left."""
        with self._lock:
            first = self._next
            # Four characters a token are few for prose and many for code: a pass may come out longer.
            size, last = 0, first
            while last < len(self._texts) and (last == first or size < PASS_TOKENS * 4):
                size += len(self._texts[last])
                last += 1
            self._next = last
        if first == last:
            return EmbeddedBatch((), np.empty((0, 0), np.float32)), 0
        vectors, long, tokens = _embed(self._model, self._texts[first:last], self._truncate_long)
        shortened = tuple(first + k for k in long)
        if shortened:
            log.warning(
                "%d texts are longer than the %d tokens the local model reads and were %s (positions %s).",
                len(shortened),
                self._model.folder.max_tokens,
                "cut" if self._truncate_long else "embedded in parts",
                ", ".join(map(str, shortened[:10])),
            )
        return EmbeddedBatch(tuple(range(first, last)), vectors, shortened), tokens


def _embed(model: _Model, texts: Sequence[str], truncate_long: bool) -> tuple[Vectors, list[int], int]:
    """Vectors of `texts`, the positions of those over the limit, and the tokens read.

    A text over the limit is embedded in parts whose vectors are averaged, weighted by length, and
    normalised again (OpenAI cookbook, "Embedding texts that are longer than the model's maximum
    context length"), or cut to its first part.
    """
    cut = [model.parts(text, truncate_long) for text in texts]
    long = [k for k, (_, is_long) in enumerate(cut) if is_long]
    flat = [part for parts, _ in cut for part in parts]
    vectors = model.pooled(flat)
    tokens = sum(map(len, flat))
    if len(flat) > len(texts):
        vectors *= np.array([len(part) for part in flat], np.float32)[:, None]
        vectors = np.add.reduceat(vectors, np.cumsum([0] + [len(parts) for parts, _ in cut[:-1]]), axis=0)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors, long, tokens


_load_lock = threading.Lock()


def _load(path: Path, *, check: bool) -> _Model:
    """The folder's model, read once a process. `check` compares the weights with those that are shipped."""
    with _load_lock:
        return _load_once(path, check)


@lru_cache(maxsize=2)
def _load_once(path: Path, check: bool) -> _Model:
    folder = weights.read_folder(path)
    if check:
        weights.check_shipped(path)
    tokenizer = weights.load_tokenizer(folder)
    bert = weights.load_bert(folder)
    _make_blas_single_threaded()
    return _Model(bert, tokenizer, folder)


def _make_blas_single_threaded() -> None:
    """For the whole process: the setting is never a thread's own, and nothing else here multiplies matrices."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise weights.not_installed(error) from None
    threadpool_limits(1, user_api="blas")


def _threads() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MAX_THREADS)
