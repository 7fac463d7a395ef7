"""What can go wrong with one request to a provider server, as functions that return a `Fault`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one request. Faults before the answer replace it; `spoil` changes a good one."""

    name: str
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = "application/json"
    spoil: Callable[[Json], Json] | None = None
    seconds: float = 0.0


def rate_limited(retry_after: str | None = None, message: str = "Rate limit reached.") -> Fault:
    """429; `retry_after` is seconds or an HTTP date."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    body = json.dumps({"detail": message, "error": {"message": message, "code": "rate_limit_exceeded"}})
    return Fault("rate_limited", 429, headers, body.encode())


def status(code: int, message: str = "Something failed.", error_code: str | None = None) -> Fault:
    """An error answer in the vendors' two shapes at once: Voyage reads `detail`, OpenAI `error`."""
    body = json.dumps({"detail": message, "error": {"message": message, "code": error_code}})
    return Fault("status", code, {}, body.encode())


def html_page(code: int = 502) -> Fault:
    """An error page as a proxy in between sends it; with 200, as a captive portal does."""
    page = b"<!DOCTYPE html><html><head><title>Bad gateway</title></head><body>proxy-7</body></html>"
    return Fault("html_page", code, {}, page, "text/html")


def hang() -> Fault:
    """No answer until the client gives up or the server is closed."""
    return Fault("hang")


def slow(seconds: float) -> Fault:
    """A good answer that takes its time."""
    return Fault("slow", seconds=seconds)


def cut() -> Fault:
    """The request is read and the connection reset."""
    return Fault("cut")


def half_body() -> Fault:
    """A good answer of which half is sent."""
    return Fault("half_body")


def _spoil_vectors(name: str, change: Callable[[list[float]], list[float]]) -> Fault:
    def spoil(answer: Json) -> Json:
        answer["data"] = [row | {"embedding": change(row["embedding"])} for row in answer["data"]]
        return answer

    return Fault(name, spoil=spoil)


def wrong_dimension(dims: int) -> Fault:
    return _spoil_vectors("wrong_dimension", lambda vector: [1.0] + [0.0] * (dims - 1))


def not_a_number() -> Fault:
    return _spoil_vectors("not_a_number", lambda vector: [float("nan"), *vector[1:]])


def zero_vectors() -> Fault:
    return _spoil_vectors("zero_vectors", lambda vector: [0.0] * len(vector))


def reversed_order() -> Fault:
    """The vectors in another order than the texts, each with its right index: a correct answer."""
    return Fault("reversed_order", spoil=lambda answer: answer | {"data": answer["data"][::-1]})


def repeated_indexes() -> Fault:
    """Every vector says that it is the first text's."""
    return Fault(
        "repeated_indexes",
        spoil=lambda answer: answer | {"data": [row | {"index": 0} for row in answer["data"]]},
    )


def empty_data() -> Fault:
    return Fault("empty_data", spoil=lambda answer: answer | {"data": []})
