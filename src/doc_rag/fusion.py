"""Reciprocal rank fusion: several ranked lists become one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

RRF_K = 60
"""The constant of Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and
individual Rank Learning Methods", SIGIR 2009."""


@dataclass(frozen=True, slots=True)
class Fused:
    """One item with its fused score and its 1-based rank in each list, None where a list lacks it."""

    item: str
    rrf_score: float
    ranks: tuple[int | None, ...]


def fuse(rankings: Sequence[Sequence[str]], k: int = RRF_K) -> list[Fused]:
    """Fuse ranked lists, best first, by the sum over the lists of 1 / (k + rank).

    Ties go to the item that an earlier list ranks higher, so the order is the same every time.
    """
    positions = [{item: rank for rank, item in enumerate(ranking, start=1)} for ranking in rankings]
    items = dict.fromkeys(item for ranking in rankings for item in ranking)
    fused = []
    for item in items:
        ranks = tuple(position.get(item) for position in positions)
        fused.append(Fused(item, sum(1 / (k + rank) for rank in ranks if rank is not None), ranks))
    last = max((len(ranking) for ranking in rankings), default=0) + 1
    return sorted(fused, key=lambda f: (-f.rrf_score, [last if r is None else r for r in f.ranks], f.item))
