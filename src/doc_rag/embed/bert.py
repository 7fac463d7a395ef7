"""A BERT encoder's forward pass in numpy: token ids in, one vector a text out. Inference only.

The texts of a call are laid end to end in one matrix, so nothing is padded and no mask is needed: the
large products run over all tokens at once, and attention looks at one text's rows at a time. Weights
are read-only after construction, so any number of threads may share a `Bert`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from doc_rag.records import Vectors

Floats = NDArray[np.float32]
TokenIds = NDArray[np.int64]
"""Token ids of one text with its special tokens, shape (tokens,)."""

GELU_BLOCK_FLOATS = 32_768
"""Floats activated at a time: four buffers of 128 KiB stay in a core's second-level cache."""


@dataclass(frozen=True, slots=True)
class BertShape:
    """The sizes of a BERT encoder, as its config.json names them."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    layer_norm_eps: float


@dataclass(frozen=True, slots=True)
class _Linear:
    weight: Floats
    """Shape (inputs, outputs): the transpose of what the file holds."""
    bias: Floats

    def __call__(self, rows: Floats) -> Floats:
        product: Floats = rows @ self.weight
        product += self.bias
        return product


@dataclass(frozen=True, slots=True)
class _Norm:
    weight: Floats
    bias: Floats
    eps: float

    def __call__(self, rows: Floats) -> Floats:
        """Layer normalisation of each row, in place."""
        rows -= rows.mean(axis=1, keepdims=True)
        scale = np.einsum("ij,ij->i", rows, rows)[:, None]
        scale /= np.float32(rows.shape[1])
        scale += np.float32(self.eps)
        np.sqrt(scale, out=scale)
        rows /= scale
        rows *= self.weight
        rows += self.bias
        return rows


@dataclass(frozen=True, slots=True)
class _Layer:
    query_key_value: _Linear
    attention_out: _Linear
    attention_norm: _Norm
    up: _Linear
    down: _Linear
    norm: _Norm


class Bert:
    """The encoder with its weights.

    Raises (at construction):
        KeyError: a tensor that this shape needs is missing; the key is its name.
    """

    def __init__(self, shape: BertShape, tensors: Mapping[str, Floats]) -> None:
        self.shape = shape
        table = "embeddings."
        self._words = tensors[f"{table}word_embeddings.weight"]
        # Every text is a single segment, so its type-0 row is the same addend for each position.
        self._positions: Floats = (
            tensors[f"{table}position_embeddings.weight"] + tensors[f"{table}token_type_embeddings.weight"][0]
        )
        self._norm = _norm(tensors, f"{table}LayerNorm", shape)
        self._layers = [_layer(tensors, f"encoder.layer.{i}.", shape) for i in range(shape.num_hidden_layers)]

    def pooled(self, texts: Sequence[TokenIds], pooling: str) -> Vectors:
        """One unit-length vector a text, shape (len(texts), hidden_size).

        `pooling` is "mean" over all tokens, special ones included, or "cls", the first token's state.
        Every text has between 1 and `max_position_embeddings` tokens.
        """
        lengths = np.array([len(ids) for ids in texts])
        starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
        states = self._states(texts, starts)
        pooled: Vectors
        if pooling == "cls":
            pooled = states[starts]
        else:
            pooled = np.add.reduceat(states, starts, axis=0)
            pooled /= lengths[:, None].astype(np.float32)
        pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
        return pooled

    def _states(self, texts: Sequence[TokenIds], starts: NDArray[np.int64]) -> Floats:
        states = self._words[np.concatenate(texts)]
        spans = [slice(start, start + len(ids)) for start, ids in zip(starts, texts, strict=True)]
        for span in spans:
            states[span] += self._positions[: span.stop - span.start]
        states = self._norm(states)
        for layer in self._layers:
            mixed = layer.attention_out(self._attend(layer.query_key_value(states), spans))
            mixed += states
            states = layer.attention_norm(mixed)
            widened = layer.up(states)
            gelu_in_place(widened)
            narrowed = layer.down(widened)
            narrowed += states
            states = layer.norm(narrowed)
        return states

    def _attend(self, projected: Floats, spans: Sequence[slice]) -> Floats:
        """Self-attention inside each span. `projected` holds query, key and value beside each other."""
        size, heads = self.shape.hidden_size, self.shape.num_attention_heads
        width = size // heads
        mixed = np.empty((len(projected), size), np.float32)
        for span in spans:
            # (3, heads, tokens, width): views, no copies.
            query, key, value = projected[span].reshape(-1, 3, heads, width).transpose(1, 2, 0, 3)
            weights: Floats = query @ key.transpose(0, 2, 1)
            weights -= weights.max(axis=2, keepdims=True)
            np.exp(weights, out=weights)
            totals = weights.sum(axis=2, keepdims=True)
            # Dividing the mixture costs tokens * width divisions, dividing the weights tokens * tokens.
            summed: Floats = weights @ value
            summed /= totals
            mixed[span] = summed.transpose(1, 0, 2).reshape(-1, size)
        return mixed


def _linear(tensors: Mapping[str, Floats], name: str) -> _Linear:
    return _Linear(np.ascontiguousarray(tensors[f"{name}.weight"].T), tensors[f"{name}.bias"])


def _norm(tensors: Mapping[str, Floats], name: str, shape: BertShape) -> _Norm:
    return _Norm(tensors[f"{name}.weight"], tensors[f"{name}.bias"], shape.layer_norm_eps)


def _layer(tensors: Mapping[str, Floats], prefix: str, shape: BertShape) -> _Layer:
    parts = [_linear(tensors, f"{prefix}attention.self.{name}") for name in ("query", "key", "value")]
    # The scores' scale of 1 / sqrt(head width) goes into the query's weights once, instead of a pass a text.
    scale = np.float32((shape.hidden_size // shape.num_attention_heads) ** -0.5)
    parts[0] = _Linear(parts[0].weight * scale, parts[0].bias * scale)
    return _Layer(
        query_key_value=_Linear(
            np.concatenate([part.weight for part in parts], axis=1),
            np.concatenate([part.bias for part in parts]),
        ),
        attention_out=_linear(tensors, f"{prefix}attention.output.dense"),
        attention_norm=_norm(tensors, f"{prefix}attention.output.LayerNorm", shape),
        up=_linear(tensors, f"{prefix}intermediate.dense"),
        down=_linear(tensors, f"{prefix}output.dense"),
        norm=_norm(tensors, f"{prefix}output.LayerNorm", shape),
    )


# Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: for z >= 0,
# erfc(z) = t (a1 + t (a2 + t (a3 + t (a4 + t a5)))) exp(-z^2) with t = 1 / (1 + p z), error below 1.5e-7,
# which is what float32 resolves beside 1. Here z = |x| / sqrt(2), and the half of erfc is in the a's.
_P = np.float32(0.3275911 / 2**0.5)
_A1, _A2, _A3, _A4, _A5 = (
    np.float32(a / 2) for a in (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
)


def gelu_in_place(values: Floats) -> None:
    """Replace each x by the exact GELU, x times the normal distribution's Phi(x). `values` is contiguous.

    With q(z) = erfc(z / sqrt 2) / 2, Phi(x) is 1 - q(|x|) above zero and q(|x|) below, so the result is
    max(x, 0) - |x| q(|x|), which needs no look at the sign.
    """
    flat = values.reshape(-1)
    block = min(GELU_BLOCK_FLOATS, len(flat))
    buffers = [np.empty(block, np.float32) for _ in range(3)]
    for start in range(0, len(flat), block):
        x = flat[start : start + block]
        size, t, tail = (buffer[: len(x)] for buffer in buffers)
        np.abs(x, out=size)
        np.multiply(size, _P, out=t)
        t += np.float32(1)
        np.reciprocal(t, out=t)
        np.multiply(t, _A5, out=tail)
        for a in (_A4, _A3, _A2, _A1):
            tail += a
            tail *= t
        np.multiply(size, size, out=t)
        t *= np.float32(-0.5)
        np.exp(t, out=t)
        tail *= t
        tail *= size
        np.maximum(x, np.float32(0), out=x)
        x -= tail
