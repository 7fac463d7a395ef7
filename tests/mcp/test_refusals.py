"""What a model gets wrong, and what is wrong with the set-up, each told in a sentence through the tool."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from mcp import Client

from doc_rag.errors import DocRagError
from doc_rag.mcp_server import build_server
from doc_rag.service import KnowledgeBase
from doc_rag.settings import Settings, load_settings
from tests.mcp.conftest import environment
from tests.mcp.gate import Gate
from tests.mcp.serving import HttpServer, call, http_session, refusal, text_of
from tests.mcp.test_tools import within

Asked = tuple[str, dict[str, object]]


def asked(settings: Settings, *calls: Asked) -> list[str]:
    """The tool errors of these calls, through an in-process client on a real knowledge base."""
    errors: list[str] = []

    async def body() -> None:
        with KnowledgeBase(settings) as kb:
            async with Client(build_server(kb, settings)) as client:
                for tool, arguments in calls:
                    errors.append(await refusal(client, tool, **arguments))

    within(body)
    return errors


def test_wrong_questions_are_refused_in_a_sentence(server: HttpServer) -> None:
    async def body() -> None:
        async with http_session(server.url) as client:
            unknown = await refusal(client, "query_docs", query="mirror", collection="observatry")
            assert "observatry" in unknown and "observatory" in unknown
            assert "empty" in await refusal(client, "query_docs", query="  \n ")
            both = await refusal(
                client, "query_docs", query="x", collection="observatory", all_collections=True
            )
            assert "exclude each other" in both
            assert "observatry" in await refusal(client, "list_documents", collection="observatry")
            assert "top_k" in await refusal(client, "query_docs", query="x", top_k="many")
            assert "query" in await refusal(client, "query_docs")
            too_long = await refusal(client, "query_docs", query="x", collection="n" * 201)
            assert "200" in too_long
            assert "Traceback" not in unknown + both + too_long

    within(body)


@pytest.mark.parametrize(("given", "used"), [(0, 1), (-1, 1), (10**9, 100)])
def test_a_top_k_out_of_bounds_is_clamped_and_the_answer_says_so(
    server: HttpServer, given: int, used: int
) -> None:
    async def body() -> None:
        async with http_session(server.url) as client:
            result = await client.call_tool("query_docs", {"query": "mirror", "top_k": given})
            assert not result.is_error
            assert f"top_k={given} is outside 1 to 100; {used} was used." in text_of(result)
            assert f"top_k={given}" in " ".join(result.structured_content["notes"])

    within(body)


def test_a_query_that_is_no_valid_unicode_is_answered(server: HttpServer) -> None:
    async def body() -> None:
        async with http_session(server.url) as client:
            await call(client, "query_docs", query="mirror \x00 washed")
            assert "is not indexed" in await refusal(
                client, "query_docs", query="mirror", collection="a \u202e b"
            )

    within(body)


def test_a_missing_docs_folder_is_named(shared_database: str, gate: Gate, tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    settings = load_settings(environment(shared_database, missing, gate, "nowhere"))
    (error,) = asked(settings, ("reindex_docs", {}))
    assert str(missing) in error


def test_an_unreachable_database_is_named_without_its_password(gate: Gate, tmp_path: Path) -> None:
    url = "postgresql://me:planted-password@127.0.0.1:1/docs"
    settings = load_settings(environment(url, tmp_path, gate, "x"))
    errors = asked(
        settings,
        ("query_docs", {"query": "x"}),
        ("list_collections", {}),
        ("reindex_docs", {}),
        ("usage_stats", {}),
    )
    for error in errors:
        assert "127.0.0.1:1" in error
        assert "planted-password" not in error


def test_a_missing_key_lists_the_tools_and_says_what_to_set(
    shared_database: str, gate: Gate, tmp_path: Path
) -> None:
    (tmp_path / "a.md").write_text("# A\n\nText.\n")
    env = environment(shared_database, tmp_path, gate, "keyless")
    del env["OPENAI_API_KEY"], env["OPENAI_BASE_URL"], env["RAG_EMBED_MODEL"]
    (error,) = asked(load_settings(env), ("reindex_docs", {}))
    assert "OPENAI_API_KEY" in error


def test_what_was_not_foreseen_is_logged_and_not_told(
    env: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> KnowledgeBase:
        raise RuntimeError("a detail of the inside")

    async def body() -> None:
        async with Client(build_server(broken, load_settings(env))) as client:
            error = await refusal(client, "list_collections")
            assert "went wrong inside the server" in error
            assert "detail" not in error

    with caplog.at_level(logging.ERROR):
        within(body)
    assert "a detail of the inside" in caplog.text


def test_an_error_never_says_a_secret(env: dict[str, str]) -> None:
    def refusing() -> KnowledgeBase:
        raise DocRagError(f"the provider said no to {env['OPENAI_API_KEY']}")

    async def body() -> None:
        async with Client(build_server(refusing, load_settings(env))) as client:
            assert env["OPENAI_API_KEY"] not in await refusal(client, "list_collections")

    within(body)
