"""Log lines: no secrets in any spelling, the request they belong to, and nothing endless."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from doc_rag.logs import MASK, known_secrets, request_id, set_up_logging
from doc_rag.settings import Settings, load_settings

TOKEN = "tok-0123456789abcdef"
VALUES = {
    "RAG_AUTH_TOKEN": TOKEN,
    "VOYAGE_API_KEY": "pa-voyage-secret",
    "OPENAI_API_KEY": "ollama",
    "RAG_DATABASE_URL": "postgresql://me:p%40ss-w0rd-9@db.example.com/docs",
}


def settings(**more: str) -> Settings:
    return load_settings(VALUES | more)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def logged(log_format: str, level: int = logging.INFO) -> tuple[io.StringIO, logging.Logger]:
    stream = io.StringIO()
    set_up_logging(settings(RAG_LOG_FORMAT=log_format), level=level, stream=stream)
    return stream, logging.getLogger("doc_rag.test")


def test_a_database_password_is_known_in_both_spellings() -> None:
    assert {"p%40ss-w0rd-9", "p@ss-w0rd-9", TOKEN} <= set(known_secrets(settings()))


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_secret_is_in_a_message_an_extra_or_a_traceback(log_format: str) -> None:
    stream, log = logged(log_format)
    try:
        raise ValueError(f"cannot reach {VALUES['RAG_DATABASE_URL']} with p@ss-w0rd-9")
    except ValueError:
        log.exception("failed with %s", TOKEN, extra={"peer": "pa-voyage-secret"})
    text = stream.getvalue()
    for secret in (TOKEN, "pa-voyage-secret", "p@ss-w0rd-9", "p%40ss-w0rd-9"):
        assert secret not in text
    assert text.count(MASK) >= 4


def test_a_word_as_key_is_not_masked() -> None:
    stream, log = logged("text")
    log.info("asking ollama")
    assert "asking ollama" in stream.getvalue()


def test_a_json_line_is_one_object_with_the_request_it_belongs_to() -> None:
    stream, log = logged("json")
    token = request_id.set("abc123")
    try:
        log.warning("two\nlines", extra={"tool": "query_docs", "milliseconds": 3.5, "unknown": "x"})
    finally:
        request_id.reset(token)
    (line,) = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert entry["message"] == "two\nlines"
    assert entry["request_id"] == "abc123"
    assert (entry["tool"], entry["milliseconds"]) == ("query_docs", 3.5)
    assert "unknown" not in entry


def test_what_a_driver_quotes_in_an_error_is_cut_short() -> None:
    stream, log = logged("text")
    try:
        raise ValueError("row: " + "secret sentence of a document " * 100)
    except ValueError:
        log.exception("failed")
    assert max(map(len, stream.getvalue().splitlines())) < 400


def test_libraries_are_heard_from_warning_on() -> None:
    stream, _ = logged("text")
    logging.getLogger("mcp.server").info("Terminating session: None")
    logging.getLogger("mcp.server").warning("odd")
    assert "Terminating" not in stream.getvalue()
    assert "odd" in stream.getvalue()
