"""The figures of a load run as Markdown tables, each beside what it is to be compared with."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.load import Outcome
    from benchmarks.load_servers import Memory
    from benchmarks.load_traffic import Call

WARM_UP_SHARE = 1 / 3
"""By then every cache has its size, every thread has run, and the allocator has its arenas."""
ALLOWED_BYTES = 16 * 2**20
ALLOWED_BYTES_PER_CALL = 512


def percentile(seconds: Sequence[float], share: float) -> float:
    """By nearest rank; nan where there is nothing."""
    if not seconds:
        return float("nan")
    return sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))]


def growth(memory: Memory) -> int:
    """Bytes by which the servers are larger at the end than after the warm-up."""
    return memory.around(1.0) - memory.around(WARM_UP_SHARE)


def allowed_growth(outcome: Outcome) -> int:
    """What may come on top after the warm-up: a fixed part, and next to nothing a call.

    A server keeps 256 answers, up to 20 KB each: 5 MB. The rest of the fixed part is the allocator's, whose
    arenas (8 a core, a thread a call) fill and fragment for some minutes: in a run of four minutes the
    servers grew by 12 MiB in the first, 2 and 5 in the next two, and 0.2 in the last.
    """
    return ALLOWED_BYTES + int(ALLOWED_BYTES_PER_CALL * len(outcome.calls) * (1 - WARM_UP_SHARE))


def tables(
    outcome: Outcome, alone: Sequence[Call], floor: Mapping[int, Sequence[float]], clients: int, servers: int
) -> str:
    """Latencies by tool, and the run as a whole."""
    return "\n".join([*_latencies(outcome, alone, floor, clients), "", *_summary(outcome, servers)])


def _latencies(
    outcome: Outcome, alone: Sequence[Call], floor: Mapping[int, Sequence[float]], clients: int
) -> list[str]:
    base, quiet = by_tool(alone), percentile(floor[clients], 0.5)
    lines = [
        "| tool | calls | refused | p50 ms | p95 ms | p99 ms | p50 to one client | p50 to an empty server |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for tool, calls in sorted(by_tool(outcome.calls).items()):
        took = [call.seconds for call in calls if not call.refused and not call.error]
        p50 = percentile(took, 0.5)
        one = percentile([call.seconds for call in base.get(tool, ()) if not call.refused], 0.5)
        refused = sum(call.refused for call in calls)
        lines.append(
            f"| {tool} | {len(calls)} | {refused} | {_ms(p50)} | {_ms(percentile(took, 0.95))} | "
            f"{_ms(percentile(took, 0.99))} | {p50 / one:.1f} | {p50 / quiet:.1f} |"
        )
    for number, listed in floor.items():
        who = f"(empty server, tools/list, {number} client{'s' if number > 1 else ''})"
        figures = " | ".join(_ms(percentile(listed, share)) for share in (0.5, 0.95, 0.99))
        lines.append(f"| {who} | {len(listed)} | | {figures} | | {percentile(listed, 0.5) / quiet:.2f} |")
    return lines


def _summary(outcome: Outcome, servers: int) -> list[str]:
    memory = outcome.memory
    asked = outcome.cache_hits + outcome.cache_misses
    reindexes = [call for call in outcome.calls if call.tool == "reindex_docs" and not call.refused]
    checked = sum(bool(call.answer) and call.tool == "query_docs" for call in outcome.calls)
    megabytes = [f"{memory.around(share) / 2**20:.0f}" for share in (0.0, WARM_UP_SHARE, 2 / 3, 1.0)]
    return [
        "| | |",
        "|---|---|",
        f"| servers | {servers} |",
        f"| calls a second | {len(outcome.calls) / outcome.seconds:.0f} |",
        f"| answers checked, of them stale | {checked}, {len(outcome.stale)} |",
        f"| errors | {len(outcome.errors)} |",
        f"| finished reindexes, median s | {len(reindexes)}, {_median([c.seconds for c in reindexes]):.2f} |",
        *([f"| runs of ingest.py beside them | {outcome.ingests} |"] if servers > 1 else []),
        f"| query cache | {outcome.cache_hits} of {asked} hit ({outcome.cache_hits / max(1, asked):.0%}) |",
        f"| resident memory at the start, a third, two thirds, the end (MiB) | {', '.join(megabytes)} |",
    ]


def by_tool(calls: Sequence[Call]) -> dict[str, list[Call]]:
    grouped: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        grouped[call.tool].append(call)
    return grouped


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f}" if seconds >= 0.1 else f"{seconds * 1000:.1f}"


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")
