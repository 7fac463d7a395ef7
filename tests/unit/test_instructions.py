"""The text at the start of a session: never waited for long, and as new as can be had."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from doc_rag.instructions import FRESH_SECONDS, Instructions, LastText
from doc_rag.render import HOW_TO_WORK
from doc_rag.settings import load_settings
from doc_rag.workers import Workers

NOWHERE = LastText(None)


def test_a_text_that_is_there_in_time_is_given() -> None:
    async def session() -> str:
        return await Instructions(lambda: "3 documents", Workers(), NOWHERE, patience_seconds=10).current()

    assert asyncio.run(session()) == "3 documents"


def test_a_database_that_takes_long_is_not_waited_for_and_the_next_session_has_the_text() -> None:
    async def session() -> tuple[str, str]:
        started = threading.Event()

        def slow() -> str:
            assert started.wait(10)
            return "3 documents"

        workers = Workers()
        instructions = Instructions(slow, workers, NOWHERE, patience_seconds=0.01)
        first = await instructions.current()
        started.set()
        await asyncio.to_thread(workers.wait_idle, 10)
        return first, await instructions.current()

    assert asyncio.run(session()) == (HOW_TO_WORK, "3 documents")


def test_what_fails_leaves_the_general_part_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str:
        raise RuntimeError("inside")

    async def session() -> str:
        return await Instructions(broken, Workers(), NOWHERE, patience_seconds=10).current()

    assert asyncio.run(session()) == HOW_TO_WORK
    assert "the instructions could not be made" in caplog.text


def test_an_old_text_is_given_at_once_while_a_new_one_is_made() -> None:
    async def session() -> list[str]:
        now, made = 0.0, iter(("old", "new"))
        workers = Workers()
        instructions = Instructions(
            lambda: next(made), workers, NOWHERE, patience_seconds=10, clock=lambda: now
        )
        said = [await instructions.current()]
        now = FRESH_SECONDS + 1
        said.append(await instructions.current())
        while said[-1] != "new":
            await asyncio.sleep(0)
            said.append(await instructions.current())
        return said

    said = asyncio.run(session())
    assert said[:2] == ["old", "old"]
    assert said[-1] == "new"


def test_the_last_sessions_text_is_given_at_once_and_dated(tmp_path: Path) -> None:
    last = LastText(tmp_path / "instructions.txt")
    blocked = threading.Event()

    async def session() -> str:
        instructions = Instructions(lambda: str(blocked.wait(10)), Workers(), last, patience_seconds=10)
        try:
            return await asyncio.wait_for(instructions.current(), 5)
        finally:
            blocked.set()

    last.write("Indexed: 3 documents")
    assert (tmp_path / "instructions.txt").stat().st_mode & 0o777 == 0o600
    text = asyncio.run(session())
    assert text.startswith("Indexed: 3 documents\n\n(As it was on 20")


def test_nothing_is_kept_where_there_is_no_folder_or_another_database(tmp_path: Path) -> None:
    missing = LastText(tmp_path / "no-folder" / "x.txt")
    missing.write("text")
    assert missing.read() is None
    assert not (tmp_path / "no-folder").exists()
    url = {"RAG_DATABASE_URL": "postgresql://localhost/x", "RAG_DATA_DIR": str(tmp_path)}
    LastText.of(load_settings(url)).write("text")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "garbage.txt").write_bytes(b"\xff\xfe")
    assert LastText(tmp_path / "garbage.txt").read() is None
