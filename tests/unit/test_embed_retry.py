"""How long a failing call is waited for, alone and with others at the same gate."""

from __future__ import annotations

import threading
import time
from email.utils import formatdate

import pytest

from doc_rag.embed import retry
from doc_rag.embed.failures import CallFailed, Kind, from_status, retry_after_seconds, said, scrub
from doc_rag.embed.retry import Abandoned, Gate, GaveUp, RetryPolicy, call_with_retries


def limited(seconds: float | None = None) -> CallFailed:
    return CallFailed(Kind.RATE_LIMITED, "HTTP 429", retry_after_seconds=seconds)


def test_the_backoff_doubles_up_to_half_a_minute_with_chance_in_it() -> None:
    policy = RetryPolicy(120, 60)
    for attempt, full in ((1, 0.25), (2, 0.5), (5, 4.0), (8, 30.0), (40, 30.0)):
        waits = [policy.wait_seconds(attempt) for _ in range(200)]
        assert full / 2 <= min(waits)
        assert max(waits) <= full
        assert max(waits) - min(waits) > full / 10


def test_a_call_is_made_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_WAIT_SECONDS", 0.001)
    failures = [limited(), CallFailed(Kind.TRANSIENT, "cut"), CallFailed(Kind.BAD_ANSWER, "NaN")]
    timeouts: list[float] = []

    def call(timeout_seconds: float) -> str:
        timeouts.append(timeout_seconds)
        if failures:
            raise failures.pop(0)
        return "answer"

    policy = RetryPolicy(5, 60)
    assert call_with_retries(call, policy, name="n", ended=threading.Event()) == "answer"
    assert timeouts[0] == 60, "the first attempt has its full time"
    assert all(timeout <= 5 for timeout in timeouts[1:]), "later ones what is left of the budget"


def test_waiting_for_others_at_the_gate_does_not_use_up_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_WAIT_SECONDS", 0.001)
    gate, ended = Gate(1), threading.Event()
    failures = [CallFailed(Kind.TRANSIENT, "cut")]

    def call(timeout_seconds: float) -> str:
        if failures:
            # Somebody else takes the one place, for longer than this call's whole budget.
            gate.slow_down(0.4)
            raise failures.pop()
        return "answer"

    begun = time.monotonic()
    assert call_with_retries(call, RetryPolicy(0.2, 60), name="n", ended=ended, gate=gate) == "answer"
    assert time.monotonic() - begun >= 0.39


@pytest.mark.parametrize("kind", [Kind.REFUSED, Kind.TOO_LARGE])
def test_what_cannot_get_better_is_not_tried_again(kind: Kind) -> None:
    calls = []

    def call(timeout_seconds: float) -> str:
        calls.append(timeout_seconds)
        raise CallFailed(kind, "no")

    with pytest.raises(CallFailed):
        call_with_retries(call, RetryPolicy(60, 60), name="n", ended=threading.Event())
    assert len(calls) == 1


def test_asking_for_no_wait_for_ever_does_not_become_a_storm() -> None:
    calls = []

    def call(timeout_seconds: float) -> str:
        calls.append(timeout_seconds)
        raise limited(0.0)

    with pytest.raises(GaveUp):
        call_with_retries(call, RetryPolicy(0.5, 60), name="n", ended=threading.Event())
    assert len(calls) < 10


def test_a_wait_ends_with_the_run() -> None:
    ended = threading.Event()
    threading.Timer(0.1, ended.set).start()

    def call(timeout_seconds: float) -> str:
        raise limited(60)

    begun = time.monotonic()
    with pytest.raises(Abandoned):
        call_with_retries(call, RetryPolicy(600, 60), name="n", ended=ended, gate=Gate(1))
    assert time.monotonic() - begun < 5


def test_a_waiting_place_at_the_gate_ends_with_the_run() -> None:
    gate, ended = Gate(1), threading.Event()
    gate.enter(ended)
    threading.Timer(0.1, ended.set).start()
    begun = time.monotonic()
    with pytest.raises(Abandoned):
        gate.enter(ended)
    assert time.monotonic() - begun < 5


def places(gate: Gate) -> int:
    """How many may be inside at once now. Those that were let in leave again."""
    inside = 0
    for _ in range(20):
        ended = threading.Event()
        timer = threading.Timer(0.15, ended.set)
        timer.start()
        try:
            gate.enter(ended)
        except Abandoned:
            break
        finally:
            timer.cancel()
        inside += 1
    for _ in range(inside):
        gate.leave(answered=False)
    return inside


def test_a_rate_limit_halves_the_calls_at_once_and_answers_win_them_back() -> None:
    gate, never = Gate(8), threading.Event()
    assert places(gate) == 8
    gate.slow_down(0.0)
    assert places(gate) == 4
    gate.slow_down(0.05)
    gate.slow_down(0.05)
    never.wait(0.06)
    assert places(gate) == 2, "limits seen in one wait halve once"
    for _ in range(4):
        gate.enter(never)
        gate.leave(answered=True)
    assert places(gate) == 3
    for _ in range(100):
        gate.enter(never)
        gate.leave(answered=True)
    assert places(gate) == 8, "never more than the setting"
    for _ in range(10):
        gate.slow_down(0.0)
    assert places(gate) == 1, "never none"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": formatdate(0, usegmt=True)}, 0.0),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after_seconds(headers) == expected


def test_retry_after_as_a_date_is_the_time_until_then() -> None:
    found = retry_after_seconds({"retry-after": formatdate(time.time() + 90, usegmt=True)})
    assert found is not None
    assert 80 < found <= 90


TOO_LARGE = [
    (400, "The max allowed tokens per submitted batch is 120000. Your batch has 130000 tokens", True),
    (400, "The batch size limit is 1000. Your batch size is 1200.", True),
    (
        400,
        "The example at index 0 in your batch has too many tokens and does not fit into the model's context",
        False,
    ),
    (400, "This model's maximum context length is 8192 tokens, however you requested 9000 tokens", False),
    (400, "Invalid 'input[0]': maximum input length is 8192 tokens.", False),
    (
        400,
        "Invalid 'input': maximum request size is 300000 tokens per request. (max_tokens_per_request)",
        True,
    ),
    (400, "Too many inputs. The max number of inputs is 16.", True),
    (400, "the input length exceeds the context length", False),
    (422, "batch size 64 > maximum allowed batch size 32", True),
    (413, "`inputs` must have less than 512 tokens. Given: 600", False),
    (413, "Payload too large", False),
    (500, "input is too large to process. increase the physical batch size", True),
]


@pytest.mark.parametrize(("status", "message", "about_batch"), TOO_LARGE)
def test_servers_say_too_large_in_many_words(status: int, message: str, about_batch: bool) -> None:
    failure = from_status(status, {}, message)
    assert failure.kind is Kind.TOO_LARGE
    assert failure.is_about_batch is about_batch


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "Model voyage-9 is not supported.", Kind.REFUSED),
        (400, "Input cannot contain empty strings or empty lists", Kind.REFUSED),
        (401, "Incorrect API key", Kind.REFUSED),
        (404, "model not found", Kind.REFUSED),
        (422, "field required", Kind.REFUSED),
        (501, "", Kind.REFUSED),
        (429, "slow down", Kind.RATE_LIMITED),
        (429, "You exceeded your current quota (insufficient_quota)", Kind.REFUSED),
        (408, "", Kind.TRANSIENT),
        (500, "oops", Kind.TRANSIENT),
        (529, "overloaded", Kind.TRANSIENT),
        (302, "", Kind.TRANSIENT),
    ],
)
def test_a_status_says_whether_trying_again_helps(status: int, message: str, kind: Kind) -> None:
    assert from_status(status, {}, message).kind is kind


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        ("limits of 3 RPM and 10K TPM", 10_000),
        ("over 1.5M TPM", 1_500_000),
        ("900 TPM", 900),
        ("3 RPM", None),
    ],
)
def test_tokens_a_minute_are_read_from_a_rate_limit(message: str, tokens: int | None) -> None:
    assert from_status(429, {}, message).tokens_per_minute == tokens


def test_what_a_provider_says_is_shortened_and_holds_no_key() -> None:
    assert scrub("key sk-abc123******wxyz, Bearer abc.def and pa-0123456789") == "key [key], [key] and [key]"
    assert scrub("secret word", ["secret"]) == "[key] word"
    assert scrub("<html><body>proxy.internal</body></html>") == "an HTML page, as proxies send"
    assert scrub("a\n  b") == "a b"
    assert len(scrub("word " * 200)) < 310
    assert "0123456789abcdef0123456789abcdef" not in scrub("key 0123456789abcdef0123456789abcdef.")


def test_error_bodies_are_read_in_the_vendors_shapes() -> None:
    assert said('{"detail": "Not supported."}') == "Not supported."
    assert said('{"error": {"message": "No.", "code": "gone"}}') == "No. (gone)"
    assert said('{"error": "plain"}') == "plain"
    assert said('["list"]') == "['list']"
    assert said("no JSON") == "no JSON"
