"""No key in anything that comes out: errors and what hangs on them, log records of every logger, reprs."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator

import pytest

from doc_rag.embed import remote
from doc_rag.errors import DocRagError
from doc_rag.rerank import make_reranker
from tests.providers.conftest import SERVERS, start
from tests.providers.servers import VoyageServer
from tests.providers.wire import (
    Fault,
    ProviderServer,
    cut,
    half_body,
    hang,
    html_page,
    rate_limited,
    status,
)

SECRET = "pa-PLANTED0secret0key0that0nobody0may0see"
VARIABLES = ("VOYAGE_API_KEY", "OPENAI_API_KEY", "AZURE_OPENAI_API_KEY")
ECHO = f"Incorrect API key provided: {SECRET}. Bearer {SECRET} was sent; {SECRET[:12]}{'*' * 20}{SECRET[-4:]}"
FAULTS = [
    status(400, ECHO),
    status(401, ECHO),
    status(403, ECHO),
    status(404, ECHO),
    status(429, ECHO, "insufficient_quota"),
    status(500, ECHO),
    Fault("plain", 400, {}, ECHO.encode(), "text/plain"),
    Fault("not_json", 200, {}, ECHO.encode()),
    rate_limited("99", ECHO),
    html_page(502),
    cut(),
    half_body(),
    hang(),
]


def said_by(error: BaseException) -> Iterator[str]:
    """All that can be read off an error: its text, its traceback as printed, its arguments, and its context's."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    yield "".join(traceback.format_exception(error))
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield from (str(one), repr(one), repr(one.args), repr(vars(one)))
        todo += [one.__cause__, one.__context__]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.name}-{fault.status}")
@pytest.mark.parametrize("kind", SERVERS.values(), ids=SERVERS)
def test_no_failure_shows_the_key(
    kind: type[ProviderServer],
    fault: Fault,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("ATTEMPT", "SELF_HOSTED_ATTEMPT", "QUERY_ATTEMPT", "QUERY_BUDGET"):
        monkeypatch.setattr(remote, f"{name}_SECONDS", 0.2)
    with kind(key=SECRET) as server, caplog.at_level(logging.DEBUG):  # type: ignore[call-arg]
        server.fail_next(fault, fault)
        run = start(server, RAG_EMBED_RETRY_SECONDS="0")
        said = [repr(run.embedder), str(run.embedder), repr(vars(run.embedder))]
        calls: list[Callable[[], object]] = [
            lambda: list(run.embedder.embed_documents(["text"])),
            lambda: run.embedder.embed_query("text"),
        ]
        for call in calls:
            with pytest.raises(DocRagError) as caught:
                call()
            said += said_by(caught.value)
        assert server.requests[0].headers.get("api-key", server.requests[0].headers.get("authorization"))
    said += [record.getMessage() + repr(record.args) + (record.exc_text or "") for record in caplog.records]
    said += [repr(event) for event in run.usage]
    said += capfd.readouterr()
    for text in said:
        assert SECRET not in text
        assert SECRET[-12:] not in text
        assert SECRET[:12] not in text, "nor the masked ends that OpenAI repeats"


def test_no_rerank_failure_shows_the_key(caplog: pytest.LogCaptureFixture) -> None:
    with VoyageServer(key=SECRET) as server, caplog.at_level(logging.DEBUG):
        made = make_reranker(server.settings(RAG_RERANK_MODEL="rerank-2.5"), lambda event: None)
        assert made is not None
        for fault in (status(401, ECHO), status(400, ECHO)):
            server.fail_next(fault)
            with pytest.raises(DocRagError) as caught:
                made.rerank("query", ["text"], 1)
            for text in said_by(caught.value):
                assert SECRET[:12] not in text
        assert SECRET[:12] not in repr(made) + repr(vars(made))


def test_a_password_in_the_address_is_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    with VoyageServer() as server, caplog.at_level(logging.DEBUG):
        address = server.url.replace("http://", "http://user:PLANTED0password@")
        for provider, variables in (
            ("voyage", {"VOYAGE_BASE_URL": address}),
            ("openai", {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": "sk-x", "RAG_EMBED_MODEL": "m"}),
            ("azure-openai", {"AZURE_OPENAI_ENDPOINT": address, "AZURE_OPENAI_API_KEY": "k"}),
        ):
            more = {"AZURE_OPENAI_EMBED_DEPLOYMENT": "d", "RAG_EMBED_PROVIDER": provider}
            run = start(server, None, **(more | variables | {"RAG_EMBED_RETRY_SECONDS": "0"}))
            assert run.embedder.identity.endpoint == server.host
            with pytest.raises(DocRagError) as caught:
                server.fail_next(status(404))
                run.embedder.embed_query("text")
            assert "PLANTED0password" not in "".join(said_by(caught.value)) + repr(run.embedder)
    assert not [record for record in caplog.records if "PLANTED0password" in record.getMessage()]
