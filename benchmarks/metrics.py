"""nDCG@k, recall@k and MRR of ranked document lists against graded judgements. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Judgements = Mapping[str, int]
"""Grade by document id; higher is better, an absent document is not relevant."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Means over the queries, each between 0 and 1."""

    ndcg_at_10: float
    recall_at_10: float
    mrr: float


def ndcg(ranking: Sequence[str], judgements: Judgements, k: int = 10) -> float:
    """Normalised discounted cumulative gain with linear gain, as trec_eval's `ndcg_cut` computes it
    (Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", TOIS 2002)."""
    gains = [judgements.get(document, 0) for document in ranking[:k]]
    ideal = sorted(judgements.values(), reverse=True)[:k]
    return _dcg(gains) / _dcg(ideal) if any(ideal) else 0.0


def _dcg(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def recall(ranking: Sequence[str], judgements: Judgements, k: int = 10) -> float:
    """The share of the relevant documents that are among the first k."""
    relevant = {document for document, grade in judgements.items() if grade > 0}
    return len(relevant & set(ranking[:k])) / len(relevant)


def reciprocal_rank(ranking: Sequence[str], judgements: Judgements) -> float:
    """One over the rank of the first relevant document, 0 where there is none."""
    for rank, document in enumerate(ranking, start=1):
        if judgements.get(document, 0) > 0:
            return 1 / rank
    return 0.0


def evaluate(rankings: Mapping[str, Sequence[str]], qrels: Mapping[str, Judgements]) -> Scores:
    """Means over the queries of `qrels`; a query without a ranking counts as nothing found."""
    lists = [(rankings.get(query, ()), judgements) for query, judgements in qrels.items()]
    return Scores(
        sum(ndcg(ranking, judgements) for ranking, judgements in lists) / len(lists),
        sum(recall(ranking, judgements) for ranking, judgements in lists) / len(lists),
        sum(reciprocal_rank(ranking, judgements) for ranking, judgements in lists) / len(lists),
    )
