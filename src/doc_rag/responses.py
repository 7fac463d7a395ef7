"""Each tool's answer as the pair a client gets, text and structured content, held under one size.

The limit (RAG_MAX_RESPONSE_CHARS) is on both together, counted in bytes of UTF-8: a client counts tokens,
and a character of Chinese costs about what three of English do. What does not fit is left out whole, in
both halves alike, and the answer says how much; only a passage too large to stand alone is cut.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from doc_rag import render, tool_schemas

if TYPE_CHECKING:  # records brings numpy, which a server should not load before it answers
    from doc_rag.records import (
        CacheStats,
        CollectionSummary,
        DocumentList,
        DocumentRecord,
        IngestReport,
        Passage,
        QueryAnswer,
        RemovalReport,
        UsageStats,
    )

NOTE_BYTES = 300
"""Kept free for what the answer says about having been cut."""

FOLDER_BYTES = 1_500
MAX_FOLDERS = 20


class Response(NamedTuple):
    """What a tool returns: readable text, and the same as data for programs."""

    text: str
    content: tool_schemas.Output


def cost_bytes(text: str, content: tool_schemas.Output | dict[str, object]) -> int:
    """Size of a text and its structured twin on the wire."""
    data = content.wire() if isinstance(content, tool_schemas.Output) else content
    wire = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode()) + len(wire.encode()) + 3


def query_response(answer: QueryAnswer, limit_bytes: int, nonce: str) -> Response:
    """The passages that fit, best first. `nonce` makes the quoting tags of this answer unguessable."""
    several = len(answer.collections) > 1
    left = limit_bytes - NOTE_BYTES - cost_bytes(render.query_head(answer, nonce), _query_result(answer, []))
    blocks: list[str] = []
    outs: list[tool_schemas.PassageOut] = []
    for passage in answer.passages:
        block, out = _passage(passage, nonce, several, None)
        size = cost_bytes(block, out)
        if size > left and not blocks:
            block, out, size = _cut_to_fit(passage, nonce, several, left)
        if size > left:
            break
        blocks.append(block)
        outs.append(out)
        left -= size
    notes = []
    if len(outs) < len(answer.passages):
        notes.append(
            f"{len(outs)} of {len(answer.passages)} passages are shown; the rest did not fit into "
            f"RAG_MAX_RESPONSE_CHARS={limit_bytes}. Ask with a smaller top_k or a narrower question."
        )
    elif any(out.truncated for out in outs):
        notes.append(f"the passage was cut to fit into RAG_MAX_RESPONSE_CHARS={limit_bytes}.")
    head = render.query_head(answer, nonce, notes)
    return Response("\n\n".join([head, *blocks]), _query_result(answer, outs, notes))


def _query_result(
    answer: QueryAnswer, passages: list[tool_schemas.PassageOut], notes: Sequence[str] = ()
) -> tool_schemas.QueryResult:
    return tool_schemas.QueryResult(
        ranking=answer.ranking,
        collections=list(answer.collections),
        revisions=dict(answer.revisions),
        passages=passages,
        passage_count=len(answer.passages),
        chunk_count=answer.chunk_count,
        notes=[*answer.notes, *notes],
        empty_reason=answer.empty_reason,
        cached=answer.cached,
    )


def _passage(
    passage: Passage, nonce: str, several: bool, content: str | None
) -> tuple[str, tool_schemas.PassageOut]:
    return (
        render.passage_text(passage, nonce, content=content, name_collection=several),
        tool_schemas.PassageOut.from_passage(passage, render.citation(passage), content),
    )


def _cut_to_fit(
    passage: Passage, nonce: str, several: bool, left: int
) -> tuple[str, tool_schemas.PassageOut, int]:
    """The longest beginning of the passage that fits into `left` bytes, found by halving."""
    low, high = 0, len(passage.content) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if cost_bytes(*_passage(passage, nonce, several, passage.content[:middle])) <= left:
            low = middle
        else:
            high = middle - 1
    block, out = _passage(passage, nonce, several, passage.content[:low])
    return block, out, cost_bytes(block, out)


def documents_response(listing: DocumentList, limit_bytes: int) -> Response:
    """The documents that could not be read first, then the rest by name; what does not fit is counted by folder."""
    several = len(listing.collections) > 1
    ordered = sorted(
        listing.documents, key=lambda pair: (pair[1].status == "indexed", pair[0], pair[1].source)
    )
    head = render.documents_head(listing)
    stale = tool_schemas.StalenessOut.from_record(listing.staleness) if listing.staleness else None
    base = tool_schemas.DocumentsResult(
        collections=list(listing.collections[: render.MAX_COLLECTIONS]),
        total=listing.total,
        skipped=listing.skipped,
        documents=[],
        staleness=stale,
        last_reindexed=dict(list(listing.last_ingest_at.items())[: render.MAX_COLLECTIONS]),
    )
    pairs = [
        (
            render.document_line(name if several else None, doc),
            tool_schemas.DocumentOut.from_record(name, doc),
        )
        for name, doc in ordered
    ]
    left = limit_bytes - NOTE_BYTES - cost_bytes(head, base)
    shown = _how_many_fit(pairs, left)
    if shown < listing.total:
        shown = _how_many_fit(pairs, left - FOLDER_BYTES)
    not_shown = listing.total - shown
    lines = [head, "", *(line for line, _ in pairs[:shown])]
    folders = _by_folder(ordered[shown:], not_shown) if not_shown else {}
    if not_shown:
        lines.append(
            f"... and {not_shown:,} more that did not fit into this answer; query_docs finds them all the same:"
        )
        lines += [
            f"    {render.one_line(folder)}: {render.plural(n, 'document')}" for folder, n in folders.items()
        ]
    content = base.model_copy(
        update={
            "documents": [out for _, out in pairs[:shown]],
            "not_shown": not_shown,
            "not_shown_by_folder": folders,
        }
    )
    return Response("\n".join(lines).rstrip(), content)


def _how_many_fit(pairs: Sequence[tuple[str, tool_schemas.Output]], left: int) -> int:
    for index, (text, out) in enumerate(pairs):
        left -= cost_bytes(text, out)
        if left < 0:
            return index
    return len(pairs)


def _by_folder(documents: Iterable[tuple[str, DocumentRecord]], left: int) -> dict[str, int]:
    """`left` documents by top folder, largest first, within FOLDER_BYTES; the other folders are summed up."""
    counts = Counter(
        doc.source.split("/", 1)[0] + "/" if "/" in doc.source else "(top folder)" for _, doc in documents
    )
    folders: dict[str, int] = {}
    room = FOLDER_BYTES - 100
    for folder, count in counts.most_common(MAX_FOLDERS):
        room -= 2 * len(render.one_line(folder).encode()) + 40
        if room < 0:
            break
        folders[render.one_line(folder)] = count
        left -= count
    if left:
        folders["(other folders)"] = left
    return folders


def collections_response(summaries: Sequence[CollectionSummary], limit_bytes: int) -> Response:
    """Every collection that fits, in the order given."""
    pairs = [(render.collection_text(s), tool_schemas.CollectionOut.from_record(s)) for s in summaries]
    shown = _how_many_fit(pairs, limit_bytes - NOTE_BYTES)
    lines = [text for text, _ in pairs[:shown]]
    if not summaries:
        lines.append("No collection is indexed yet -- reindex_docs()")
    if shown < len(pairs):
        lines.append(
            f"... and {len(pairs) - shown:,} more collections that did not fit; doc-rag status lists them."
        )
    content = tool_schemas.CollectionsResult(collections=[out for _, out in pairs[:shown]], total=len(pairs))
    return Response("\n".join(lines), content)


def reindex_response(report: IngestReport, limit_bytes: int) -> Response:
    """What was done and left; the reasons for skips and the warnings as far as they fit."""
    step = render.next_step(report)
    head = render.reindex_head(report)
    skips = [(render.reason_line("skipped", s.source, s.reason), s) for s in report.skips]
    warnings = [(render.reason_line("warning", s.source, s.reason), s) for s in report.warnings]
    pairs = [(line, tool_schemas.Reasoned.model_validate(s)) for line, s in (*skips, *warnings)]
    base = tool_schemas.ReindexResult.from_report(report, step, 0)
    shown = _how_many_fit(pairs, limit_bytes - NOTE_BYTES - cost_bytes(head, base))
    lines = [head, *(line for line, _ in pairs[:shown])]
    if shown < len(pairs):
        lines.append(f"... and {len(pairs) - shown:,} more files skipped or warned about -- list_documents()")
    content = base.model_copy(
        update={
            "skips": [out for _, out in pairs[: min(shown, len(skips))]],
            "warnings": [out for _, out in pairs[len(skips) : max(shown, len(skips))]],
        }
    )
    return Response("\n".join(lines), content)


def removal_response(report: RemovalReport) -> Response:
    return Response(render.removal_text(report), tool_schemas.RemovalResult.model_validate(report))


def cache_response(stats: CacheStats) -> Response:
    return Response(render.cache_text(stats), tool_schemas.CacheStatsResult.model_validate(stats))


def usage_response(usage: UsageStats, limit_bytes: int) -> Response:
    """The tally, most tokens first where it has to be cut."""
    rows = sorted(usage.rows, key=lambda row: -row.tokens)
    kept = len(rows)
    while True:
        part = replace(usage, rows=tuple(rows[:kept]))
        text = render.usage_text(part)
        if kept < len(rows):
            text += f"\n... and {len(rows) - kept:,} more rows that did not fit."
        content = tool_schemas.UsageResult(
            rows=[tool_schemas.UsageOut.model_validate(row) for row in part.rows],
            total_tokens=sum(row.tokens for row in rows),
            since=usage.since,
            cache=tool_schemas.CacheStatsResult.model_validate(usage.cache),
        )
        if kept == 0 or cost_bytes(text, content) <= limit_bytes:
            return Response(text, content)
        kept //= 2


def cleared_response(dropped: int) -> Response:
    return Response(render.cleared_text(dropped), tool_schemas.CacheClearedResult(dropped=dropped))
