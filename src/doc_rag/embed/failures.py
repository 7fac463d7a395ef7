"""Why one call to a provider failed, and what that means for trying again. No SDK in sight.

Messages are built from our own words and, where it helps, from what the provider said, cut short and with
everything that looks like a key taken out: OpenAI's 401 repeats parts of the key it was given.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from enum import Enum

MAX_MESSAGE_CHARS = 300


class Kind(Enum):
    RATE_LIMITED = "rate limited"
    TRANSIENT = "transient"
    TOO_LARGE = "too large"
    BAD_ANSWER = "bad answer"
    """A whole answer that cannot be used: it was paid for, so it is asked for again only a few times."""
    REFUSED = "refused"


class CallFailed(Exception):
    """One call failed. `reason` is for people and holds no secret; it never reaches them as this class.

    `tokens` is what the call cost: 0 where the provider answered with an error, None where no whole
    answer came, so that it may have been billed or not. `sent` is False where no connection was made.
    """

    def __init__(
        self,
        kind: Kind,
        reason: str,
        *,
        status: int | None = None,
        retry_after_seconds: float | None = None,
        tokens: int | None = 0,
        sent: bool = True,
        tokens_per_minute: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.status = status
        self.retry_after_seconds = retry_after_seconds
        self.tokens = tokens
        self.sent = sent
        self.tokens_per_minute = tokens_per_minute

    @property
    def is_about_batch(self) -> bool:
        """Whether a refusal as too large means the batch as a whole, and not one text in it."""
        return self.kind is Kind.TOO_LARGE and bool(_WHOLE_BATCH.search(self.reason))


_TOO_LARGE = re.compile(
    r"max(imum)? allowed tokens|max(imum)? (batch|context|input|request|number of)|context (length|window|size)"
    r"|too (many|large|long)|batch size|less than \d+ tokens|array_above_max_length|max_tokens_per_request"
    r"|maximum length|exceed\w* .{0,40}(tokens|length|limit|size)",
    re.IGNORECASE,
)
_WHOLE_BATCH = re.compile(
    r"submitted batch|batch size|too many inputs|array_above_max_length|array too long|per request|per_request",
    re.IGNORECASE,
)
_TOO_LARGE_ON_500 = re.compile(r"too large to process|input length exceeds", re.IGNORECASE)
_NO_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota", re.IGNORECASE)
_TOKENS_PER_MINUTE = re.compile(r"(\d+(?:\.\d+)?)\s*([KM]?)\s*TPM", re.IGNORECASE)
_KEY_LIKE = re.compile(r"\b(?:sk|pa|al|pk)-[\w*.-]{4,}|(?i:bearer)\s+\S+|\b(?=\w*\d)(?=\w*[A-Za-z])\w{32,}\b")


def from_status(
    status: int, headers: Mapping[str, str], message: str, secrets: Sequence[str] = ()
) -> CallFailed:
    """What an answer with an error status means. `message` is what the provider said, with its error code."""
    # Of a refused key nothing is repeated, whatever shape it is masked in.
    said = "" if status == 401 else scrub(message, secrets)
    reason = f"HTTP {status}" + (f": {said}" if said else "")
    wait = retry_after_seconds(headers)
    if status == 413 or (status in (400, 422) and _TOO_LARGE.search(message)):
        return CallFailed(Kind.TOO_LARGE, reason, status=status)
    if status >= 500 and _TOO_LARGE_ON_500.search(message):
        return CallFailed(Kind.TOO_LARGE, reason, status=status)
    if status == 429:
        if _NO_QUOTA.search(message):
            return CallFailed(Kind.REFUSED, reason, status=status)
        found = _TOKENS_PER_MINUTE.search(message)
        limit = (
            int(float(found[1]) * {"": 1, "K": 1_000, "M": 1_000_000}[found[2].upper()]) if found else None
        )
        return CallFailed(
            Kind.RATE_LIMITED,
            reason,
            status=status,
            retry_after_seconds=wait,
            tokens_per_minute=limit,
        )
    if status in (408, 409) or (status >= 500 and status not in (501, 505)):
        # A gateway that gave up on the provider cannot say whether the provider answered and billed.
        tokens = None if status in (502, 504) else 0
        return CallFailed(Kind.TRANSIENT, reason, status=status, retry_after_seconds=wait, tokens=tokens)
    if status < 400:
        return CallFailed(
            Kind.TRANSIENT, f"an answer that is not the API's ({reason})", status=status, tokens=None
        )
    return CallFailed(Kind.REFUSED, reason, status=status)


def no_answer(reason: str, *, sent: bool = True) -> CallFailed:
    """The connection could not be made, broke, or stayed silent for too long."""
    return CallFailed(Kind.TRANSIENT, reason, tokens=None, sent=sent)


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """How long the provider asks to wait: `retry-after-ms`, or `retry-after` in seconds or as an HTTP date."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name) or headers.get(name.title())
        if not value:
            continue
        try:
            seconds = float(value) * scale
        except ValueError:
            try:
                seconds = parsedate_to_datetime(value).timestamp() - time.time()
            except (ValueError, TypeError, OverflowError):
                continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def said(text: str) -> str:
    """The message and code in an error body, in the shapes that the vendors use; else the body itself."""
    try:
        body = json.loads(text)
    except ValueError:
        return text
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return str(error)
    message = error.get("message") or error.get("detail") or text
    return f"{message} ({error['code']})" if error.get("code") else str(message)


def scrub(message: str, secrets: Sequence[str] = ()) -> str:
    """`message` on one line, at most MAX_MESSAGE_CHARS long, without keys or what looks like one.

    An HTML page is only named: its text belongs to a proxy and helps nobody.
    """
    if re.search(r"<\s*(!doctype|html|head|body)\b", message, re.IGNORECASE):
        return "an HTML page, as proxies send"
    for secret in secrets:
        if secret:
            message = message.replace(secret, "[key]")
    message = " ".join(_KEY_LIKE.sub("[key]", message).split())
    return message if len(message) <= MAX_MESSAGE_CHARS else message[:MAX_MESSAGE_CHARS] + "..."
