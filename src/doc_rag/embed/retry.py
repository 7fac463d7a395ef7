"""Try a call again while that can help: jittered backoff, Retry-After, one budget, one shared slow-down.

tenacity was considered: its wait and stop look at one call, and what matters here lies between calls (a rate
limit seen by one batch holds back the others, and a stop wakes every waiting thread at once).
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from doc_rag.embed.failures import CallFailed, Kind

log = logging.getLogger(__name__)

T = TypeVar("T")
FIRST_WAIT_SECONDS = 0.25
LONGEST_WAIT_SECONDS = 30.0
BAD_ANSWERS_TRIED = 3
POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to go on with a failing call, and how long one attempt may last.

    The budget runs from the first attempt, over attempts and the waits between them.
    """

    budget_seconds: float
    attempt_seconds: float

    def wait_seconds(self, attempt: int) -> float:
        """Exponential in the failed attempts (1, 2, ...), between half and all of it by chance."""
        full = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** (attempt - 1))
        return full * random.uniform(0.5, 1.0)


class Abandoned(Exception):
    """The run ended while this call waited; never seen outside `doc_rag.embed`."""


class GaveUp(Exception):
    """The budget ran out, or bad answers repeated. `last` is the failure that decided it."""

    def __init__(self, last: CallFailed) -> None:
        super().__init__(last.reason)
        self.last = last


class Gate:
    """Lets calls through, fewer at once and none before a set time after a rate limit.

    Halves the calls at once on a rate limit and wins a quarter of one back with each answer (additive
    increase, multiplicative decrease, as TCP does), so that batches do not storm a limit together.
    """

    def __init__(self, concurrency: int) -> None:
        self._most = float(concurrency)
        self._allowed = float(concurrency)
        self._running = 0
        self._not_before = 0.0
        self._changed = threading.Condition()

    def enter(self, ended: threading.Event) -> None:
        """Wait for a place. Raises Abandoned within POLL_SECONDS of `ended`."""
        with self._changed:
            while not ended.is_set():
                wait = self._not_before - time.monotonic()
                if wait <= 0 and self._running < int(self._allowed):
                    self._running += 1
                    return
                self._changed.wait(min(wait, POLL_SECONDS) if wait > 0 else POLL_SECONDS)
        raise Abandoned

    def leave(self, *, answered: bool) -> None:
        with self._changed:
            self._running -= 1
            if answered:
                self._allowed = min(self._most, self._allowed + 0.25)
            self._changed.notify_all()

    def slow_down(self, seconds: float) -> None:
        """No call begins for `seconds`; limits that are seen meanwhile do not halve again."""
        with self._changed:
            now = time.monotonic()
            if now >= self._not_before:
                self._allowed = max(1.0, self._allowed / 2)
            self._not_before = max(self._not_before, now + seconds)


def call_with_retries(
    call: Callable[[float], T],
    policy: RetryPolicy,
    *,
    name: str,
    ended: threading.Event,
    gate: Gate | None = None,
    shared: Gate | None = None,
) -> T:
    """`call(timeout_seconds)` until it answers, waiting between attempts as the failure says.

    With `gate`, every attempt passes it; with `shared`, a rate limit is only reported to it (a query does
    not queue behind an ingest).

    Raises:
        CallFailed: a refusal, or a batch that is too large: trying again cannot help.
        GaveUp: the budget ran out (at once where the wait asked for is longer than what is left of it).
        Abandoned: `ended` was set.
    """
    begun: float | None = None
    attempt = bad_answers = 0
    timeout = policy.attempt_seconds
    while True:
        queued = time.monotonic()
        if gate:
            gate.enter(ended)
        # What a call waits for its turn among others is not held against it: only what its own failures cost.
        begun = time.monotonic() if begun is None else begun + time.monotonic() - queued
        failure: CallFailed
        try:
            answer = call(timeout)
        except CallFailed as error:
            failure = error
            if gate:
                gate.leave(answered=False)
        except BaseException:
            if gate:
                gate.leave(answered=False)
            raise
        else:
            if gate:
                gate.leave(answered=True)
            return answer
        if failure.kind in (Kind.REFUSED, Kind.TOO_LARGE):
            raise failure
        attempt += 1
        bad_answers += failure.kind is Kind.BAD_ANSWER
        wait = _wait_seconds(failure, policy, bad_answers if failure.kind is Kind.BAD_ANSWER else attempt)
        elapsed = time.monotonic() - begun
        if elapsed + wait > policy.budget_seconds or bad_answers >= BAD_ANSWERS_TRIED:
            raise GaveUp(failure)
        timeout = min(policy.attempt_seconds, max(1.0, policy.budget_seconds - elapsed - wait))
        log.info("%s: %s; waiting %.1f s before trying again.", name, failure.reason, wait)
        slowed = gate or shared
        if slowed and failure.kind is Kind.RATE_LIMITED:
            slowed.slow_down(wait)
        if ended.wait(wait):
            raise Abandoned


def _wait_seconds(failure: CallFailed, policy: RetryPolicy, attempt: int) -> float:
    """What the failure asks for, else the backoff; from the fourth attempt on never less than a backoff."""
    asked = failure.retry_after_seconds
    if asked is None:
        return policy.wait_seconds(attempt)
    # A little more than asked, by chance, so that batches do not come back in the same instant.
    wait = asked + random.uniform(0, min(1.0, asked * 0.1))
    # "Retry-After: 0" from a server that goes on failing must not become a storm.
    return max(wait, policy.wait_seconds(attempt - 3)) if attempt > 3 else wait


def gave_up_message(name: str, error: GaveUp, policy: RetryPolicy) -> str:
    """One sentence on why a call was given up."""
    asked = error.last.retry_after_seconds
    waits = f", and asks to wait {asked:.0f} s" if asked else ""
    return (
        f"{name} did not answer within {policy.budget_seconds:g} s ({error.last.reason.rstrip('.')}{waits})."
    )
