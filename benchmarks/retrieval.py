"""Retrieval quality as a number: `make bench-retrieval`, or `python -m benchmarks.retrieval --help`.

Each labelled set is ingested and asked through the service, with the `local` embedder. A document's
rank is its best chunk's. `bm25s` over the same documents is the independent baseline.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from psycopg import sql

from benchmarks import labelled
from benchmarks.labelled import LabelledSet
from benchmarks.metrics import Scores, evaluate
from doc_rag import prepare, search
from doc_rag.records import QueryAnswer
from doc_rag.service import KnowledgeBase
from doc_rag.settings import load_settings
from doc_rag.store import catalog
from doc_rag.store.queries import partition_name

SETS = ("cranfield", "anthropic-docs", "cacm")
CHUNKS_RANKED = 100
Rankings = Mapping[str, Sequence[str]]
CONTEXTS = ("both", "text", "none")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--queries", type=int, help="ask only the first N of each set")
    parser.add_argument(
        "--context",
        nargs="+",
        default=["both"],
        choices=CONTEXTS,
        help="put title and heading path in front of embedded text and full text, of full text alone, or of none",
    )
    arguments = parser.parse_args()
    if not labelled.SHARED.is_dir():
        print("the labelled sets are not beside the checkout: nothing measured", file=sys.stderr)
        return 0
    print("| set | context | ranking | nDCG@10 | recall@10 | MRR |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o711)  # an embedded Postgres of root's runs as another user
        for name in arguments.sets:
            labelled_set = _first(labelled.load(name, Path(scratch)), arguments.queries)
            for context in arguments.context:
                for ranking, found in measure(labelled_set, Path(scratch), context).items():
                    _row(name, context, ranking, evaluate(found, labelled_set.qrels))
    return 0


def _first(labelled_set: LabelledSet, count: int | None) -> LabelledSet:
    kept = dict(list(labelled_set.qrels.items())[:count])
    return replace(labelled_set, qrels=kept)


def _row(name: str, context: str, ranking: str, scores: Scores) -> None:
    figures = f"{scores.ndcg_at_10:.3f} | {scores.recall_at_10:.3f} | {scores.mrr:.3f}"
    print(f"| {name} | {context} | {ranking} | {figures} |", flush=True)


def measure(labelled_set: LabelledSet, scratch: Path, context: str) -> dict[str, Rankings]:
    """The rankings of documents by vector, hybrid and text search through the service, by query id."""
    environ = {
        "RAG_DATA_DIR": str(scratch / "data"),
        "RAG_DATABASE_URL": os.environ.get("RAG_DATABASE_URL", ""),
        "RAG_ENV_FILE": os.devnull,
        "RAG_EMBED_PROVIDER": "local",
        "RAG_DOCS_DIR": str(labelled_set.docs),
        "RAG_COLLECTION": f"{labelled_set.name} {context}",
    }
    with KnowledgeBase(load_settings(environ)) as kb, _context(context):
        kb.reindex_docs()
        found: dict[str, Rankings] = {"vector": _asked(kb, labelled_set)}
        found["bm25s"] = bm25(kb, labelled_set)
        found["text"] = {query: _by_text(kb, labelled_set.queries[query]) for query in labelled_set.qrels}
    with KnowledgeBase(load_settings(environ | {"RAG_HYBRID_SEARCH": "true"})) as kb:
        found["hybrid"] = _asked(kb, labelled_set)
    return found


def _asked(kb: KnowledgeBase, labelled_set: LabelledSet) -> Rankings:
    ask: Callable[[str], QueryAnswer] = lambda text: kb.query_docs(text, top_k=CHUNKS_RANKED)  # noqa: E731
    return {
        query: _documents(passage.source for passage in ask(labelled_set.queries[query]).passages)
        for query in labelled_set.qrels
    }


def _by_text(kb: KnowledgeBase, text: str) -> Sequence[str]:
    with kb.database.snapshot() as connection:
        live = catalog.live_generation(connection, kb.settings.collection)
        found = search.candidates(connection, [live], text, None, limit=CHUNKS_RANKED, hybrid=False)
    return _documents(hit.source for hit in found.hits)


def _documents(sources: Iterable[str]) -> list[str]:
    """Document ids in the order of their first chunk."""
    return list(dict.fromkeys(Path(source).stem for source in sources))


@contextmanager
def _context(where: str) -> Iterator[None]:
    """Vary where title and heading path are put; what the product itself does is "both", by the table's word."""

    def without(self: prepare.Prepared, i: int) -> str:
        return self.chunks[i].content

    with ExitStack() as stack:
        if where in ("text", "none"):
            stack.enter_context(patch.object(prepare.Prepared, "embedded_text", without))
        if where == "none":
            stack.enter_context(patch.object(prepare, "context_prefix", lambda title, path: ""))
        yield


def bm25(kb: KnowledgeBase, labelled_set: LabelledSet) -> Rankings:
    """Rankings by `bm25s` (Lucene's variant, English stemmer and stop words) over the chunks of the index."""
    import bm25s
    import Stemmer

    with kb.database.connection() as connection:
        live = catalog.live_generation(connection, kb.settings.collection)
        rows = connection.execute(
            sql.SQL("select source, content from {} order by id").format(partition_name(live.id))
        ).fetchall()
    stemmer = Stemmer.Stemmer("english")
    options = {"stopwords": "en", "stemmer": stemmer, "show_progress": False}
    index = bm25s.BM25()
    index.index(bm25s.tokenize([content for _, content in rows], **options), show_progress=False)
    asked = [labelled_set.queries[query] for query in labelled_set.qrels]
    found, _ = index.retrieve(
        bm25s.tokenize(asked, **options), k=min(CHUNKS_RANKED, len(rows)), show_progress=False
    )
    return {
        query: _documents(rows[i][0] for i in row)
        for query, row in zip(labelled_set.qrels, found, strict=True)
    }


if __name__ == "__main__":
    sys.exit(main())
