"""Many clients while documents are reindexed all the time: no error, no stale answer. `make soak-load`: for long."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

from benchmarks.load import Outcome, run, stage
from benchmarks.load_servers import server
from benchmarks.load_traffic import MIX

CLIENTS = 8
SECONDS = 5.0
FEW_REINDEXES = 2


def measured(database_url: str, folder: Path, servers: int) -> Outcome:
    with ExitStack() as stack:
        staged = stack.enter_context(stage(folder, {"RAG_DATABASE_URL": database_url}, database_url, 30, 40))
        logs = [folder / f"server-{number}.log" for number in range(servers)]
        running = [stack.enter_context(server(staged.variables, log)) for log in logs]
        outcome = asyncio.run(run(staged, running, CLIENTS, SECONDS, command_line=servers > 1))
    assert outcome.errors == []
    assert outcome.stale == []
    asked = [call for call in outcome.calls if call.tool == "query_docs"]
    assert any(call.answer["passages"] for call in asked)
    written = [call for call in outcome.calls if call.tool == "reindex_docs" and not call.refused]
    assert len(written) + outcome.ingests >= FEW_REINDEXES, "hardly anything was written: nothing was tested"
    assert len({tuple(call.answer["revisions"].items()) for call in asked}) > FEW_REINDEXES
    for log in logs:
        assert "Traceback" not in log.read_text(errors="replace")
    return outcome


def test_no_error_and_no_stale_answer_while_documents_are_reindexed(
    database_url: str, tmp_path: Path
) -> None:
    measured(database_url, tmp_path, servers=1)


def test_no_stale_answer_from_two_servers_and_a_command_line_on_one_database(
    database_url: str, tmp_path: Path
) -> None:
    assert measured(database_url, tmp_path, servers=2).ingests


def test_the_mix_has_all_eight_tools() -> None:
    from tests.mcp.serving import EIGHT

    named = {kind.split()[0] for kind in MIX}
    assert {"query": "query_docs", "remove": "remove_document"}.items() <= {
        kind: tool for kind in named for tool in EIGHT if tool.startswith(kind)
    }.items()
    assert named - {"query", "remove"} == set(EIGHT) - {"query_docs", "remove_document"}
