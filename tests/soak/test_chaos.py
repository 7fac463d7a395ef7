"""Postgres dies, hangs, fills up or cuts everybody off in the middle of the load.

Errors come only while it is away, each in the tool's words and soon; the next calls work, without a restart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.load import Stage, stage, stale_answers
from benchmarks.load_servers import server
from benchmarks.load_traffic import Call, Revisions, Traffic
from tests.soak import trouble
from tests.soak.trouble import Trouble, Victim, victim

CALM_SECONDS = 1.5
AFTER_SECONDS = 5.0
RECOVERY_SECONDS = 2.5
"""How long after the database is back a call may still be sent in vain. Measured: none was."""
NEEDS_DATABASE = (
    "query_docs",
    "list_documents",
    "list_collections",
    "usage_stats",
    "remove_document",
    "reindex_docs",
)

CRASHES = (trouble.killed, trouble.killed_and_revived)

URL, EMBEDDED = "a database of its own", "the embedded server"


@dataclass(frozen=True, slots=True)
class Course:
    """A run with trouble in it; times are of `time.monotonic`."""

    calls: list[Call]
    down_at: float
    back_at: float
    stale: list[str]

    @property
    def errors(self) -> list[Call]:
        return [call for call in self.calls if call.error]

    def waited(self, call: Call) -> float:
        """Seconds from the trouble, or from the later call, to the answer."""
        return call.started + call.seconds - max(call.started, self.down_at)

    @property
    def recovered_after(self) -> float:
        """Seconds from the database's return to the first good answer that needed it."""
        good = [
            call.started + call.seconds
            for call in self.calls
            if call.tool in NEEDS_DATABASE and not call.error and call.started + call.seconds > self.back_at
        ]
        return min(good) - self.back_at


async def through(staged: Stage, url: str, postgres: Victim, what: Trouble, clients: int) -> Course:
    """Traffic and reindexing, trouble in the middle of it, and some time afterwards."""
    revisions = Revisions(staged.database_url)
    traffic = Traffic([url], revisions, staged.main, staged.spare, seed=3)
    over = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(traffic.ask(clients, over.is_set))
        tasks.create_task(traffic.write(over.is_set, None))
        await asyncio.sleep(CALM_SECONDS)
        down_at = time.monotonic()
        await what(postgres)
        back_at = time.monotonic()
        await asyncio.sleep(AFTER_SECONDS)
        over.set()
    await revisions.close()
    assert traffic.problems == []
    crash = (down_at, back_at) if what in CRASHES else None
    return Course(traffic.calls, down_at, back_at, stale_answers(traffic.calls, staged.database_url, crash))


def course_of(folder: Path, where: str, what: Trouble, clients: int) -> Course:
    with victim() as postgres:
        database = (
            {"RAG_DATABASE_URL": postgres.url} if where == URL else {"RAG_DATA_DIR": str(postgres.folder)}
        )
        with (
            stage(folder, database, postgres.url, 30, 40) as staged,
            server(staged.variables, folder / "server.log") as (url, _),
        ):
            course = asyncio.run(through(staged, url, postgres, what, clients))
    assert "Traceback" not in (folder / "server.log").read_text(errors="replace")
    return course


def assert_only_while_it_was_away(course: Course, *, slowest_seconds: float) -> None:
    late = [call for call in course.errors if call.started > course.back_at + RECOVERY_SECONDS]
    early = [call for call in course.errors if call.started + call.seconds < course.down_at]
    assert not late, f"{late[0].started - course.back_at:.1f} s after its return: {late[0].error}"
    assert not early, early[0].error
    for call in course.errors:
        assert call.tool in NEEDS_DATABASE, f"{call.tool} needs no database: {call.error}"
        assert "could not be reached" in (call.error or ""), call.error
        assert "inside the server" not in (call.error or ""), call.error
        waited = course.waited(call)
        # A run under way notices at its next statement, which an embedding call may be in front of.
        limit = slowest_seconds + (5.0 if call.tool == "reindex_docs" else 0.0)
        assert waited < limit, f"an error after {waited:.1f} s: {call.error}"
    assert course.recovered_after < RECOVERY_SECONDS
    assert course.stale == []
    good_again = {call.tool for call in course.calls if not call.error and call.started > course.back_at}
    assert {"query_docs", "reindex_docs"} <= good_again


def report(course: Course, name: str) -> None:
    slowest = max((course.waited(call) for call in course.errors), default=0.0)
    last = max((call.started for call in course.errors), default=course.down_at) - course.back_at
    print(
        f"{name}: away {course.back_at - course.down_at:.1f} s, "
        f"{len(course.errors)} errors of {len(course.calls)} calls, slowest error {slowest:.1f} s, "
        f"last error sent {last:+.1f} s and first good answer {course.recovered_after:.2f} s after its return"
    )


@pytest.mark.parametrize(
    ("where", "what"),
    [(URL, trouble.killed), (EMBEDDED, trouble.killed_and_revived)],
    ids=["url", "embedded"],
)
def test_killed_and_back(tmp_path: Path, where: str, what: Trouble) -> None:
    course = course_of(tmp_path, where, what, clients=4)
    report(course, f"killed, {where}")
    assert where == EMBEDDED or course.errors
    assert_only_while_it_was_away(course, slowest_seconds=4.0)


def test_connections_cut_off(tmp_path: Path) -> None:
    course = course_of(tmp_path, URL, trouble.cut_off, clients=4)
    report(course, "connections terminated")
    assert_only_while_it_was_away(course, slowest_seconds=3.0)


LONG: Mapping[str, tuple[Trouble, float]] = {
    "killed": (trouble.killed, 4.0),
    "paused": (trouble.paused, 12.0),
    "paused for long": (trouble.paused_for_long, 12.0),
    "no connection left": (trouble.filled, 6.0),
    "cut off": (trouble.cut_off, 3.0),
}


@pytest.mark.soak
@pytest.mark.parametrize("where", [URL, EMBEDDED])
@pytest.mark.parametrize("name", LONG)
def test_all_troubles_under_a_heavier_load(tmp_path: Path, where: str, name: str) -> None:
    what, slowest = LONG[name]
    if name == "killed" and where == EMBEDDED:
        what = trouble.killed_and_revived
    course = course_of(tmp_path, where, what, clients=16)
    report(course, f"{name}, {where}")
    assert_only_while_it_was_away(course, slowest_seconds=slowest)
