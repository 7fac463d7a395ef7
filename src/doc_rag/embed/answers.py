"""Read and check an embeddings answer: nothing that a provider sends is believed unseen.

The APIs of Voyage, OpenAI, Azure and the servers that speak OpenAI's share one shape:
{"data": [{"index": 0, "embedding": [...] or base64}], "usage": {"total_tokens": n}}.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from doc_rag.embed.failures import CallFailed, Kind, no_answer
from doc_rag.records import Vectors


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer as it came: rows by their index, and the tokens it was billed for (None: not said)."""

    rows: tuple[tuple[int | None, Any], ...]
    tokens: int | None


def parse_embeddings(payload: Any) -> Answer:
    """Raises CallFailed where `payload` is no embeddings answer at all."""
    data = payload.get("data") if isinstance(payload, Mapping) else None
    if not isinstance(data, Sequence) or not all(
        isinstance(row, Mapping) and "embedding" in row for row in data
    ):
        raise no_answer("an answer that holds no embeddings")
    return Answer(tuple((row.get("index"), row["embedding"]) for row in data), tokens_of(payload))


def tokens_of(payload: Mapping[str, Any]) -> int | None:
    usage = payload.get("usage")
    tokens = usage.get("total_tokens", usage.get("prompt_tokens")) if isinstance(usage, Mapping) else None
    return tokens if isinstance(tokens, int) and tokens >= 0 else None


def check_vectors(answer: Answer, count: int) -> Vectors:
    """The vectors in the order of the texts, shape (count, dims), each finite and not zero.

    Raises:
        CallFailed (BAD_ANSWER): another number of vectors, indexes that are no permutation, different
            lengths, components that are no numbers. Carries the tokens, which were billed all the same.
    """

    def bad(why: str) -> CallFailed:
        return CallFailed(Kind.BAD_ANSWER, f"an unusable answer: {why}", tokens=answer.tokens)

    if len(answer.rows) != count:
        raise bad(f"{len(answer.rows)} vectors for {count} texts")
    indexes = [index for index, _ in answer.rows]
    if all(index is None for index in indexes):
        indexes = list(range(count))
    if sorted(index if isinstance(index, int) else -1 for index in indexes) != list(range(count)):
        raise bad("its indexes do not number the texts")
    rows: list[Any] = [None] * count
    for index, (_, embedding) in zip(indexes, answer.rows, strict=True):
        try:
            rows[int(index or 0)] = _floats(embedding)
        except (ValueError, TypeError, binascii.Error):
            raise bad(f"the vector of text {index} is no list of numbers") from None
    lengths = {len(row) for row in rows}
    if len(lengths) != 1 or lengths == {0}:
        raise bad(f"vectors of {', '.join(map(str, sorted(lengths)))} dimensions beside each other")
    vectors: Vectors = np.stack(rows)
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    wrong = np.flatnonzero(~np.isfinite(norms) | (norms == 0))
    if len(wrong):
        kind = "zero" if norms[wrong[0]] == 0 else "not finite"
        raise bad(f"the vector of text {int(wrong[0])} is {kind}")
    return vectors


def _floats(embedding: Any) -> Vectors:
    if isinstance(embedding, str):
        row = np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
    else:
        with np.errstate(over="ignore"):
            # What float32 cannot hold becomes infinite, and is refused as such.
            row = np.asarray(embedding, np.float32)
    if row.ndim != 1:
        raise ValueError("not one row")
    return row
