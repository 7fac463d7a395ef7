"""Which documents left the disk, and whether that may be believed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

MIN_GUARDED_REMOVALS = 5
"""Fewer removals than this are never held: deleting two of three notes is no accident."""


@dataclass(frozen=True, slots=True)
class Removals:
    """Documents that are gone: those to drop now, and those held until somebody confirms."""

    drop: tuple[str, ...]
    held: tuple[str, ...]


def plan_removals(
    indexed: Iterable[str],
    on_disk: Iterable[str],
    unreadable: Iterable[str],
    *,
    guard_share: float,
    confirmed: bool,
    unread: Collection[str] = (),
) -> Removals:
    """Compare the index with the disk.

    What lies in or below a name of `unreadable` is unknown, so it is never counted as removed. A
    removal of `guard_share` (0 to 1) of the documents or more, and of at least five, is held; a disk
    with none of the documents left and nothing else either (an unmounted folder) always is. Of those in
    `unread` nothing is indexed, so nothing is lost with them: they neither count nor wait.
    """
    present = set(on_disk)
    hidden = tuple(unreadable)
    all_gone = {name for name in set(indexed) - present if not _is_below(name, hidden)}
    known = set(indexed) - set(unread)
    gone = sorted(all_gone & known)
    if not gone or confirmed:
        return Removals(tuple(sorted(all_gone)), ())
    is_large = len(gone) >= MIN_GUARDED_REMOVALS and len(gone) >= guard_share * len(known)
    if is_large or not present:
        return Removals(tuple(sorted(all_gone - known)), tuple(gone))
    return Removals(tuple(sorted(all_gone)), ())


def _is_below(name: str, folders: tuple[str, ...]) -> bool:
    return any(folder in (name, ".", "") or name.startswith(folder + "/") for folder in folders)
