"""The official SDK for TypeScript, both its lines and both protocol eras, over both transports."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.clients.conftest import spawning
from tests.clients.node import KINDS, Event, Kind, Session, Transcript, calling, listing, session, transcript
from tests.clients.packages import Packages
from tests.mcp.serving import EIGHT, TOKEN, HttpServer, http_server

pytestmark = pytest.mark.clients

BEARER = {"Authorization": f"Bearer {TOKEN}"}
Connect = Callable[[list[Event]], AbstractContextManager[Session]]


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    made: Kind = request.param
    return made


@pytest.fixture(params=["stdio", "http"])
def connect(
    request: pytest.FixtureRequest,
    packages: Packages,
    kind: Kind,
    fresh_env: dict[str, str],
    tmp_path: Path,
    said: Path,
) -> Connect:
    """A session on a server of the test's own."""

    @contextmanager
    def over_http(steps: list[Event]) -> Iterator[Session]:
        with (
            http_server(fresh_env, tmp_path / "server.log") as server,
            session(packages, kind, steps, said, http={"url": server.url, "headers": BEARER}) as made,
        ):
            yield made

    def over_stdio(steps: list[Event]) -> AbstractContextManager[Session]:
        return session(packages, kind, steps, said, stdio=spawning(fresh_env, tmp_path))

    return over_stdio if request.param == "stdio" else over_http


STEPS = (
    listing(),
    calling("query_docs", query="how often is the mirror washed"),  # 1: nothing is indexed yet
    calling("reindex_docs"),
    calling("query_docs", query="how often is the mirror washed", top_k=2),  # 3
    calling("query_docs", query="how often is the mirror washed", top_k=1_000),
    calling("list_documents"),  # 5
    calling("list_collections"),
    calling("remove_document", source="notes.txt"),  # 7
    calling("remove_document", source="no such file"),
    calling("reindex_docs"),  # 9
    calling("cache_stats"),
    calling("usage_stats"),  # 11
    calling("query_docs", query="where is the log book"),
    calling("clear_cache"),  # 13
    calling("query_docs", top_k="many"),
    calling("query_docs", query="mirror", collection="nowhere"),  # 15
)


def test_it_lists_exactly_eight_tools_and_calls_every_one(connect: Connect, kind: Kind) -> None:
    with connect(list(STEPS)) as running:
        heard = transcript(running)
    connected = heard.one("connected")
    assert connected["server"]["name"] == "doc-rag-mcp"
    assert connected["revision"] == kind.revision
    assert "query_docs" in connected["instructions"]

    tools = heard.tools()
    assert tuple(tools) == EIGHT
    for tool in tools.values():
        assert tool["title"] and tool["description"] and tool["annotations"]
        assert tool["inputSchema"]["type"] == tool["outputSchema"]["type"] == "object"
    assert {step["tool"] for step in STEPS if step["do"] == "call"} == set(EIGHT)

    check_what_the_tools_answered(heard)
    check_what_was_refused(heard)
    check_progress(heard, 2)


def check_what_the_tools_answered(heard: Transcript) -> None:
    assert heard.content(2)["new"] == 3
    first = heard.content(3)["passages"][0]
    assert first["source"] == "guide/telescope.md"
    assert first["citation"] in heard.step(3)["content"][0]["text"]
    assert "100" in str(heard.content(4)["notes"]), "nothing says that top_k was clamped"
    documents = {document["source"]: document for document in heard.content(5)["documents"]}
    assert len(documents) == 4 and documents["broken.txt"]["reason"]
    assert [c["dimensions"] for c in heard.content(6)["collections"] if c["name"].startswith("fresh ")]
    assert heard.content(7)["still_on_disk"] is True
    assert heard.content(9)["new"] == 1
    assert heard.content(10)["misses"] >= 1
    assert heard.content(11)["rows"]
    assert heard.content(13)["dropped"] >= 1


def check_what_was_refused(heard: Transcript) -> None:
    assert "nothing is indexed" in heard.refusal(1) or "is not indexed" in heard.refusal(1)
    assert "no such file" in heard.refusal(8)
    assert "top_k" in heard.refusal(14)
    assert "is not indexed; indexed collections: " in heard.refusal(15)


def check_progress(heard: Transcript, step: int) -> None:
    reports = heard.progress(step)
    counts = [report["progress"] for report in reports]
    assert counts and counts == sorted(set(counts)), f"no progress, or not growing: {reports}"
    assert all(report["message"] for report in reports)
    assert heard.before_result(step)


def test_the_client_checks_structured_content_against_the_output_schema(
    packages: Packages, kind: Kind, tmp_path: Path, said: Path
) -> None:
    liar = {"command": sys.executable, "args": [str(Path(__file__).with_name("lying_server.py"))]}
    steps = [listing(), calling("count")]
    with session(packages, kind, steps, said, stdio=liar | {"env": {}, "cwd": str(tmp_path)}) as running:
        refused = transcript(running).one("raised")
    assert refused["step"] == 1
    assert "schema" in refused["message"]


def test_a_wrong_token_is_told_as_401(packages: Packages, kind: Kind, server: HttpServer, said: Path) -> None:
    wrong = {"url": server.url, "headers": {"Authorization": "Bearer wrong"}}
    with session(packages, kind, [listing()], said, http=wrong) as running:
        (refused,) = running.rest()
    assert refused["event"] == "raised" and refused["step"] is None
    assert "401" in f"{refused['message']} {refused['code']} {refused['status']}", refused
