"""Seeded vectors that are clustered as text embeddings are: random ones alone are no test of recall."""

from __future__ import annotations

import numpy as np

from doc_rag.records import Vectors


def clustered(count: int, dims: int, *, clusters: int = 200, seed: int = 0) -> Vectors:
    """`count` unit vectors around `clusters` centres, shape (count, dims)."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(clusters, dims))
    points = centres[rng.integers(clusters, size=count)] + 0.6 * rng.normal(size=(count, dims))
    unit: Vectors = (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)
    return unit
