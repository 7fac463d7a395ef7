"""The eight tools on the SDK's `MCPServer`: check, call the service in a worker thread, report progress, answer.

Everything the model may act on is a tool error of one sentence; what was not foreseen is logged and told
to the model as such, without its text. The friendly server class is named here and nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from doc_rag import __version__, responses, tool_schemas
from doc_rag.calls import Calls
from doc_rag.errors import DocRagError, IngestFailed
from doc_rag.instructions import Instructions, LastText
from doc_rag.logs import RedactingFormatter, known_secrets, request_id
from doc_rag.middleware.sessions import GONE, client_key
from doc_rag.render import reindex_head
from doc_rag.workers import ProgressRelay, Workers

if TYPE_CHECKING:
    from doc_rag.records import Progress
    from doc_rag.service import KnowledgeBase
    from doc_rag.settings import Settings

log = logging.getLogger(__name__)

NAME = "doc-rag-mcp"
TITLE = "Document search"
MAX_LISTED = 10_000
STDIO_CLIENT = "stdio"

Offer = Callable[["Progress"], None]

READS = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
REMOVES = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)
RESETS = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)

CollectionName = Annotated[
    str | None,
    Field(description="Collection to use; leave it out for the server's own. list_collections() names them."),
]
AllCollections = Annotated[
    bool, Field(description="Use every collection instead of one; excludes collection.")
]


class Tools:
    """The tools over one knowledge base. `kb()` gives it, opening it on first use, and may block."""

    def __init__(
        self, kb: Callable[[], KnowledgeBase], settings: Settings, workers: Workers, calls: Calls
    ) -> None:
        self._kb = kb
        self._limit_bytes = settings.max_response_chars
        self._detached = settings.reindex_detached
        self._workers = workers
        self._calls = calls
        self._redact = RedactingFormatter(known_secrets(settings)).redact

    async def query_docs(
        self,
        ctx: Context[Any, Any],
        query: Annotated[
            str, Field(description="A question, or the exact words to look for; up to 8,000 characters.")
        ],
        top_k: Annotated[
            int,
            Field(
                description="Chunks to find, 1 to 100; a value outside is clamped, and the answer says so."
            ),
        ] = 5,
        collection: CollectionName = None,
        all_collections: AllCollections = False,
    ) -> Annotated[CallToolResult, tool_schemas.QueryResult]:
        """Search the indexed documents. Returns passages, best first, each with its file, heading path,
        lines or page, score and chunk id; cite them. Neighbouring chunks are joined into one passage.
        Ask before opening whole files. If nothing fits, ask again in other words or with a larger top_k."""
        nonce = secrets.token_hex(4)

        def work(kb: KnowledgeBase, offer: Offer) -> responses.Response:
            answer = kb.query_docs(
                query, top_k=top_k, collection=collection, all_collections=all_collections, progress=offer
            )
            return responses.query_response(answer, self._limit_bytes, nonce)

        return await self._answer("query_docs", ctx, work)

    async def list_documents(
        self,
        ctx: Context[Any, Any],
        collection: CollectionName = None,
        all_collections: AllCollections = False,
    ) -> Annotated[CallToolResult, tool_schemas.DocumentsResult]:
        """List the indexed documents with size and chunks, those that could not be read with the reason, when
        the collection was last reindexed, and, for the server's own collection, whether files changed since."""

        def work(kb: KnowledgeBase, _: Offer) -> responses.Response:
            listing = kb.list_documents(
                collection=collection, all_collections=all_collections, limit=MAX_LISTED
            )
            return responses.documents_response(listing, self._limit_bytes)

        return await self._answer("list_documents", ctx, work)

    async def list_collections(
        self, ctx: Context[Any, Any]
    ) -> Annotated[CallToolResult, tool_schemas.CollectionsResult]:
        """List the collections: documents, chunks, embedding model and dimensions, chunk settings, when last
        reindexed, and whether removals wait to be confirmed."""

        def work(kb: KnowledgeBase, _: Offer) -> responses.Response:
            return responses.collections_response(kb.list_collections(), self._limit_bytes)

        return await self._answer("list_collections", ctx, work)

    async def reindex_docs(
        self,
        ctx: Context[Any, Any],
        force_rebuild: Annotated[
            bool, Field(description="Embed every document again, even if nothing changed; costs tokens.")
        ] = False,
        confirm_large_removal: Annotated[
            bool,
            Field(
                description="Drop documents that are gone even if they are half of the collection or more."
            ),
        ] = False,
    ) -> Annotated[CallToolResult, tool_schemas.ReindexResult]:
        """Bring the server's own collection up to date with its folder: new and changed files are embedded,
        removed ones dropped. Reports progress and can be cancelled; what was stored until then stays."""
        request = ctx.request_context.request
        client = client_key(request.scope) if request is not None else STDIO_CLIENT
        gone: threading.Event | None = request.scope.get(GONE) if request is not None else None
        abandoned = threading.Event()

        def work(kb: KnowledgeBase, offer: Offer) -> responses.Response:
            # Opened here, in the thread: a detached run can be called off when nobody waits for it any more.
            with self._calls.open(client, ctx.request_id) as cancelled:

                def stopped() -> bool:
                    left = gone is not None and gone.is_set() and not self._detached
                    return left or cancelled.is_set() or abandoned.is_set() or self._workers.stopping.is_set()

                report = kb.reindex_docs(
                    force_rebuild=force_rebuild,
                    confirm_large_removal=confirm_large_removal,
                    progress=offer,
                    stopped=stopped,
                )
            return responses.reindex_response(report, self._limit_bytes)

        try:
            return await self._answer("reindex_docs", ctx, work)
        except asyncio.CancelledError:
            if request is None or not self._detached:
                abandoned.set()
            raise

    async def remove_document(
        self,
        ctx: Context[Any, Any],
        source: Annotated[str, Field(description="The document, as list_documents() and passages name it.")],
        collection: CollectionName = None,
    ) -> Annotated[CallToolResult, tool_schemas.RemovalResult]:
        """Remove one document from the index. The file itself is not touched; while it is in the folder, the
        next reindex brings it back."""

        def work(kb: KnowledgeBase, _: Offer) -> responses.Response:
            return responses.removal_response(kb.remove_document(source, collection=collection))

        return await self._answer("remove_document", ctx, work)

    async def cache_stats(
        self, ctx: Context[Any, Any]
    ) -> Annotated[CallToolResult, tool_schemas.CacheStatsResult]:
        """Hits, misses and size of this server's query cache."""
        return await self._answer(
            "cache_stats", ctx, lambda kb, _: responses.cache_response(kb.cache_stats())
        )

    async def usage_stats(
        self, ctx: Context[Any, Any]
    ) -> Annotated[CallToolResult, tool_schemas.UsageResult]:
        """Calls and tokens by provider, model and operation (a local tally, not a provider's bill), and the
        query cache's statistics."""
        return await self._answer(
            "usage_stats", ctx, lambda kb, _: responses.usage_response(kb.usage_stats(), self._limit_bytes)
        )

    async def clear_cache(
        self, ctx: Context[Any, Any]
    ) -> Annotated[CallToolResult, tool_schemas.CacheClearedResult]:
        """Drop every cached answer. Answers are never stale, so this is for measuring, not for correctness."""
        return await self._answer(
            "clear_cache", ctx, lambda kb, _: responses.cleared_response(kb.clear_cache())
        )

    async def _answer(
        self, tool: str, ctx: Context[Any, Any], work: Callable[[KnowledgeBase, Offer], responses.Response]
    ) -> CallToolResult:
        """Run `work` in a worker thread, with progress to the client, and turn what it raises into a tool error."""
        started, outcome = time.monotonic(), "failed"
        try:
            async with ProgressRelay(ctx.report_progress) as relay:
                response = await self._workers.run(lambda: work(self._kb(), relay.offer))
            outcome = "ok"
            return CallToolResult(
                content=[TextContent(type="text", text=response.text)],
                structured_content=response.content.wire(),
            )
        except DocRagError as error:
            outcome = "refused"
            raise ToolError(self._sayable(error)) from None
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except Exception:
            log.exception("the tool %s failed inside the server", tool)
            where = f" under request {request_id.get()}" if request_id.get() else ""
            raise ToolError(
                f"something went wrong inside the server, which is not your doing; its log has it{where}."
            ) from None
        finally:
            milliseconds = round((time.monotonic() - started) * 1000, 1)
            log.info("tool call", extra={"tool": tool, "status": outcome, "milliseconds": milliseconds})

    def _sayable(self, error: DocRagError) -> str:
        """The error's sentence without secrets and in valid Unicode, and how far a failed run came."""
        text = str(error)
        if isinstance(error, IngestFailed):
            text = f"{text}\n{reindex_head(error.report)}"
        return self._redact(text).encode("utf-8", "replace").decode("utf-8")


def build_server(
    kb: KnowledgeBase | Callable[[], KnowledgeBase],
    settings: Settings,
    *,
    workers: Workers | None = None,
    calls: Calls | None = None,
) -> MCPServer[Any]:
    """The MCP server with its eight tools. `kb` may be a function, called in a worker thread on first use.

    `workers` and `calls` are given where somebody else must know what is under way (the HTTP app does).
    """
    opener: Callable[[], KnowledgeBase] = kb if callable(kb) else lambda: kb
    workers = Workers() if workers is None else workers
    tools = Tools(opener, settings, workers, Calls() if calls is None else calls)
    instructions = Instructions(lambda: opener().instructions(), workers, LastText.of(settings))
    server: MCPServer[Any] = MCPServer(
        NAME,
        title=TITLE,
        version=__version__,
        instructions=instructions.fallback,
        subscriptions=False,  # the tools never change, so there is nothing to listen to
        middleware=[instructions],
        log_level="WARNING",
    )
    for function, title, hints in (
        (tools.query_docs, "Search documents", READS),
        (tools.list_documents, "List documents", READS),
        (tools.list_collections, "List collections", READS),
        (tools.reindex_docs, "Reindex documents", REMOVES),
        (tools.remove_document, "Remove a document from the index", REMOVES),
        (tools.cache_stats, "Query cache statistics", READS),
        (tools.usage_stats, "Usage statistics", READS),
        (tools.clear_cache, "Clear the query cache", RESETS),
    ):
        description = " ".join((function.__doc__ or "").split())
        server.add_tool(function, title=title, description=description, annotations=hints)
    return server
