"""Retrieval quality as a number: `make bench-retrieval`, or `python -m benchmarks.retrieval --help`.

Each labelled set is ingested and asked through the service, with the `local` embedder. A document's
rank is its best chunk's. `bm25s` over the same documents is the independent baseline.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import labelled
from benchmarks.labelled import LabelledSet
from benchmarks.metrics import Scores, evaluate
from doc_rag import prepare, search
from doc_rag.records import QueryAnswer
from doc_rag.service import KnowledgeBase
from doc_rag.settings import load_settings
from doc_rag.store import catalog

SETS = ("cranfield", "anthropic-docs", "cacm")
CHUNKS_RANKED = 100
Rankings = Mapping[str, Sequence[str]]
CONTEXTS = ("both", "embedded", "text", "none")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--queries", type=int, help="ask only the first N of each set")
    parser.add_argument(
        "--context",
        nargs="+",
        default=["both"],
        choices=CONTEXTS,
        help="put title and heading path in front of what is embedded, of the full text, of both or of none",
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
            _row(name, "", "bm25s", evaluate(bm25(labelled_set), labelled_set.qrels))
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


def _documents(sources: Any) -> list[str]:
    """Document ids in the order of their first chunk."""
    return list(dict.fromkeys(Path(source).stem for source in sources))


@contextmanager
def _context(where: str) -> Any:
    """Vary where title and heading path are put; the product itself does one of these, by the table's word."""
    embedded_text = prepare.Prepared.embedded_text
    prefix = prepare.context_prefix

    def without(self: prepare.Prepared, i: int, document_prefix: str) -> str:
        return document_prefix + self.chunks[i].content

    try:
        if where in ("text", "none"):
            prepare.Prepared.embedded_text = without  # type: ignore[method-assign]
        if where == "none":
            prepare.context_prefix = lambda title, path: ""
        yield
    finally:
        prepare.Prepared.embedded_text = embedded_text  # type: ignore[method-assign]
        prepare.context_prefix = prefix


def bm25(labelled_set: LabelledSet) -> Rankings:
    """Rankings by `bm25s` (Lucene's variant, English stemmer and stop words) over whole documents."""
    import bm25s
    import Stemmer

    documents = labelled.texts(labelled_set)
    ids = list(documents)
    stemmer = Stemmer.Stemmer("english")
    quiet = {"stopwords": "en", "stemmer": stemmer, "show_progress": False}
    index = bm25s.BM25()
    index.index(bm25s.tokenize(list(documents.values()), **quiet), show_progress=False)
    asked = [labelled_set.queries[query] for query in labelled_set.qrels]
    found, _ = index.retrieve(
        bm25s.tokenize(asked, **quiet), k=min(CHUNKS_RANKED, len(ids)), show_progress=False
    )
    return {query: [ids[i] for i in row] for query, row in zip(labelled_set.qrels, found, strict=True)}


if __name__ == "__main__":
    sys.exit(main())
