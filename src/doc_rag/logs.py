"""Logging to stderr: one line an event, or one JSON object a line, with the request it belongs to.

stdout belongs to the protocol, so nothing here ever writes to it. A formatter is the last to touch a
line, so that is where known secrets are taken out: messages, fields and tracebacks alike. Exception
texts are cut short, because a driver may quote the row it failed on and rows hold document text.
Called once by each entry point (`serve`, `cli`).
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import fields
from datetime import UTC, datetime
from typing import TextIO
from urllib.parse import quote, unquote, urlsplit

from doc_rag.setting_values import Secret
from doc_rag.settings import Settings

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The HTTP request being answered; None on stdio. Follows the request into its worker thread."""

MASK = "**********"
MIN_SECRET_CHARS = 8
"""Shorter values (`ollama` as the key of a local server) are words, and masking them would maim the log."""

MAX_EXCEPTION_LINE_CHARS = 300

EXTRA_FIELDS = ("tool", "method", "path", "status", "milliseconds", "peer")
"""What a caller may pass in `extra=`; anything else stays out of the log."""

_NOISY = ("mcp", "sse_starlette", "uvicorn", "httpx", "httpcore", "asyncio")
"""Libraries that log each request or session at INFO; our own lines say it once."""


class RedactingFormatter(logging.Formatter):
    """`2026-11-30 12:00:00 WARNING doc_rag.http_app [3f9a] text`, without the secrets it was given."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._secrets = sorted((s for s in secrets if len(s) >= MIN_SECRET_CHARS), key=len, reverse=True)

    def redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text

    def formatException(self, ei: object) -> str:
        text = super().formatException(ei)  # type: ignore[arg-type]
        return "\n".join(
            line if len(line) <= MAX_EXCEPTION_LINE_CHARS else f"{line[:MAX_EXCEPTION_LINE_CHARS]} ..."
            for line in text.splitlines()
        )

    def _exception(self, record: logging.LogRecord) -> str | None:
        return self.redact(self.formatException(record.exc_info)) if record.exc_info else None

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created).strftime("%Y-%m-%d %H:%M:%S")
        asked = request_id.get()
        line = f"{when} {record.levelname} {record.name}{f' [{asked}]' if asked else ''} "
        line += self.redact(record.getMessage())
        found = {name: getattr(record, name) for name in EXTRA_FIELDS if hasattr(record, name)}
        line += "".join(f" {name}={self.redact(str(value))}" for name, value in found.items())
        exception = self._exception(record)
        return f"{line}\n{exception}" if exception else line


class JsonFormatter(RedactingFormatter):
    """One JSON object a line: time (UTC), level, logger, message, request_id and the extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": self.redact(record.getMessage()),
            "request_id": request_id.get(),
        }
        for name in EXTRA_FIELDS:
            if hasattr(record, name):
                value = getattr(record, name)
                entry[name] = self.redact(value) if isinstance(value, str) else value
        exception = self._exception(record)
        if exception:
            entry["exception"] = exception
        return json.dumps(entry, ensure_ascii=True, default=str)


def known_secrets(settings: Settings) -> tuple[str, ...]:
    """Every value that must not be shown, in each spelling it may turn up in.

    A database URL counts as a whole and by its password, percent-encoded and decoded.
    """
    found: list[str] = []
    for field in fields(settings):
        value = getattr(settings, field.name)
        if not isinstance(value, Secret):
            continue
        text = value.reveal()
        found.append(text)
        if "://" in text:
            password = urlsplit(text).password
            if password:
                found += [password, unquote(password), quote(unquote(password), safe="")]
    return tuple(dict.fromkeys(found))


def set_up_logging(settings: Settings, *, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Send the log to stderr (or `stream`) in the format of RAG_LOG_FORMAT; replaces what was set up before.

    Done before anything of `mcp` is built: its own set-up steps back where a handler exists.
    """
    secrets = known_secrets(settings)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        JsonFormatter(secrets) if settings.log_format == "json" else RedactingFormatter(secrets)
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("doc_rag").setLevel(level)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
