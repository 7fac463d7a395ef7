"""A hundred `kill -9` at random moments of an ingest: `make soak-kill`, or `python -m benchmarks.kill_ingest --help`.

About 200 files change between the kills, some runs rebuild with another chunk size. After each kill every
document must be one version of its file, whole, and the collection must answer; the last run must end with
the rows of a clean ingest. Moments and files come from the seed; what a moment hits does not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.ingest_safety.killing import Campaign, Outcome
from tests.providers.servers import OpenAIServer
from tests.support.postgres import test_server


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    arguments = parser.parse_args()
    admin_url = test_server()
    started = time.monotonic()
    with (
        OpenAIServer(key=None, models={"tiny-embed": 24}) as server,
        tempfile.TemporaryDirectory(prefix="doc-rag-kill-") as folder,
    ):
        outcome = Campaign(admin_url, Path(folder), server, arguments.seed).run(arguments.kills, _show)
    for problem in outcome.problems:
        print(f"! {problem}")
    print(
        f"{outcome.kills} kills in {time.monotonic() - started:.0f} s (a whole run takes "
        f"{outcome.full_seconds:.1f} s; {outcome.ended_before} runs had ended before their kill), "
        f"{outcome.rebuilds_hit} of them with a rebuild under way: {len(outcome.problems)} problems. "
        f"{outcome.texts} texts were paid for, {outcome.paid_again} of them again."
    )
    return 1 if outcome.problems else 0


def _show(outcome: Outcome) -> None:
    if outcome.kills % 10 == 0:
        print(f"{outcome.kills} kills, {len(outcome.problems)} problems", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
