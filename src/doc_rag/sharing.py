"""The documents of a dated series, prepared, become what each of them holds and what it repeats. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from doc_rag.prepare import Prepared
from doc_rag.series import Share, share_out
from doc_rag.store.repeats import NewRepeat


def shared_out(members: Sequence[Prepared]) -> tuple[Prepared, ...]:
    """The members, in order of date, each with only the chunks that it holds.

    Equal means the same text under the same heading path; a title that has the date in it may differ.
    """
    days = [
        (_day(member), [(chunk.heading_path, chunk.content) for chunk in member.chunks]) for member in members
    ]
    shares = share_out(days)
    return tuple(_reduced(member, share, members) for member, share in zip(members, shares, strict=True))


def _reduced(member: Prepared, share: Share, members: Sequence[Prepared]) -> Prepared:
    kept = [held.index for held in share.held]
    return replace(
        member,
        chunks=[member.chunks[i] for i in kept],
        contexts=[member.contexts[i] for i in kept],
        embed_keys=[member.embed_keys[i] for i in kept],
        also_on=[held.also_on for held in share.held],
        repeats=[
            NewRepeat(
                member.chunks[repeated.index],
                members[repeated.holder].source,
                members[repeated.holder].chunks[repeated.holder_index].index,
            )
            for repeated in share.repeated
        ],
    )


def _day(member: Prepared) -> date:
    assert member.document is not None and member.document.document_date is not None  # it is of a series
    return member.document.document_date
