"""Hits become passages: neighbouring chunks of one section are joined, their overlap removed by position."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from doc_rag.records import Hit, Passage

TextBetween = Callable[[Hit, int, int], str]
"""The text of a hit's document between two character offsets."""


def join(hits: Sequence[Hit], text_between: TextBetween) -> tuple[Passage, ...]:
    """Passages in the order of their best hit. `text_between` fills what lies between two chunks."""
    best = {hit.chunk_id: rank for rank, hit in enumerate(hits)}
    groups = sorted(_groups(hits), key=lambda group: min(best[hit.chunk_id] for hit in group))
    return tuple(
        _passage(rank, group, min(group, key=lambda hit: best[hit.chunk_id]), text_between)
        for rank, group in enumerate(groups, start=1)
    )


def _groups(hits: Sequence[Hit]) -> Iterable[list[Hit]]:
    """Runs of hits that follow one another in one section of one document."""
    group: list[Hit] = []
    for hit in sorted(hits, key=lambda h: (h.collection, h.source, h.chunk_index)):
        if group and not _follows(group[-1], hit):
            yield group
            group = []
        group.append(hit)
    if group:
        yield group


def _follows(before: Hit, after: Hit) -> bool:
    return (
        (before.collection, before.source, before.heading_path)
        == (after.collection, after.source, after.heading_path)
        and before.chunk_index + 1 == after.chunk_index
        and before.also_on == after.also_on
    )


def _passage(rank: int, group: list[Hit], best: Hit, text_between: TextBetween) -> Passage:
    first, last = group[0], group[-1]
    content = first.content
    end = first.char_end
    for hit in group[1:]:
        if hit.char_start > end:
            content += text_between(first, end, hit.char_start)
            end = hit.char_start
        content += hit.content[end - hit.char_start :]
        end = max(end, hit.char_end)
    return Passage(
        rank=rank,
        chunk_ids=tuple(hit.chunk_id for hit in group),
        collection=first.collection,
        source=first.source,
        title=first.title,
        content=content,
        heading_path=first.heading_path,
        char_start=first.char_start,
        char_end=end,
        line_start=first.line_start,
        line_end=max(hit.line_end for hit in group),
        page_start=first.page_start,
        page_end=last.page_end,
        score=best.score,
        score_kind=best.score_kind,
        cosine_score=best.cosine_score,
        vector_rank=best.vector_rank,
        text_rank=best.text_rank,
        rerank_score=best.rerank_score,
        also_on=first.also_on,
    )
