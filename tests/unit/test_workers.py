"""Worker threads and the progress they report."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from doc_rag.records import Progress
from doc_rag.workers import ProgressRelay, Workers

Sent = list[tuple[float, float | None, str | None]]


def recorder(sent: Sent) -> Callable[[float, float | None, str | None], Awaitable[None]]:
    async def report(progress: float, total: float | None, message: str | None) -> None:
        sent.append((progress, total, message))

    return report


def test_a_call_does_not_hold_up_the_loop() -> None:
    async def session() -> str:
        workers, release = Workers(), threading.Event()
        slow = asyncio.create_task(workers.run(lambda: release.wait(10)))
        quick = await asyncio.wait_for(workers.run(lambda: "quick"), 5)
        release.set()
        assert await slow
        return quick

    assert asyncio.run(session()) == "quick"


def test_what_a_call_raises_is_raised_where_it_is_awaited() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(Workers().run(fail))


def test_a_cancelled_wait_ends_at_once_and_its_thread_is_still_counted() -> None:
    async def session() -> None:
        workers, entered, release = Workers(), threading.Event(), threading.Event()

        def work() -> None:
            entered.set()
            release.wait(10)

        task = asyncio.create_task(workers.run(work))
        await asyncio.to_thread(entered.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)
        assert workers.running == 1
        assert not workers.wait_idle(0)
        release.set()
        assert await asyncio.to_thread(workers.wait_idle, 5)

    asyncio.run(session())


def test_calls_beyond_the_slots_wait_their_turn() -> None:
    async def session() -> tuple[int, int]:
        workers, lock = Workers(slots=2), threading.Lock()
        now = most = 0
        together = threading.Barrier(2)

        def work() -> None:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            together.wait(5)
            with lock:
                now -= 1

        await asyncio.gather(*(workers.run(work) for _ in range(6)))
        return most, workers.running

    assert asyncio.run(session()) == (2, 0)


def test_progress_only_grows_and_the_last_state_goes_out_before_the_result() -> None:
    async def session() -> Sent:
        sent: Sent = []
        async with ProgressRelay(recorder(sent)) as relay:
            for done, stage in ((3, "walk"), (1, "index"), (2, "index"), (5, "index")):
                await Workers().run(lambda d=done, s=stage: relay.offer(Progress(s, d, 5, f"{s} {d}")))  # type: ignore[misc]
                await asyncio.sleep(0)
        return sent

    sent = asyncio.run(session())
    values = [value for value, _, _ in sent]
    assert values == sorted(set(values))
    assert sent[-1] == (5.0, 5.0, "index 5")


def test_a_silent_run_still_gives_signs_of_life_short_of_the_next_step() -> None:
    async def session() -> Sent:
        sent: Sent = []
        enough = asyncio.Event()
        record = recorder(sent)

        async def report(progress: float, total: float | None, message: str | None) -> None:
            await record(progress, total, message)
            if len(sent) >= 4:
                enough.set()

        async with ProgressRelay(report, heartbeat_seconds=0.01) as relay:
            relay.offer(Progress("index", 2, 10, "big.pdf"))
            await asyncio.wait_for(enough.wait(), 10)
        return sent

    sent = asyncio.run(session())
    values = [value for value, _, _ in sent]
    assert values[0] == 2.0
    assert values == sorted(set(values))
    assert max(values) < 3
    assert {message for _, _, message in sent} == {"big.pdf"}


def test_a_client_that_cannot_be_told_does_not_fail_the_call(caplog: pytest.LogCaptureFixture) -> None:
    async def report(progress: float, total: float | None, message: str | None) -> None:
        raise ConnectionError("gone")

    async def session() -> int:
        async with ProgressRelay(report) as relay:
            relay.offer(Progress("index", 1, 2))
            return await Workers().run(lambda: 7)

    assert asyncio.run(session()) == 7
    assert "progress could not be sent" in caplog.text
