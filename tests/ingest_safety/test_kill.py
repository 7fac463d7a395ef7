"""`kill -9` of an ingest at random moments; the long course is `make soak-kill`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ingest_safety.killing import Campaign
from tests.providers.servers import OpenAIServer

KILLS = 10
SEED = 20


@pytest.mark.timeout(300)
def test_ten_kills_leave_every_document_whole_and_the_last_run_equals_a_clean_one(
    postgres_server: str, tmp_path: Path
) -> None:
    with OpenAIServer(key=None, models={"tiny-embed": 24}) as server:
        outcome = Campaign(postgres_server, tmp_path, server, SEED).run(KILLS)
    print(outcome)
    assert outcome.problems == []
    assert outcome.kills == KILLS
