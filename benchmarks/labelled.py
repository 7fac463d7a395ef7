"""The labelled retrieval sets beside the checkout: documents, queries and judgements."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import dataclass
from pathlib import Path

SHARED = Path(__file__).resolve().parents[2] / "shared" / "eval"


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """One set. `docs` is a folder to ingest; a document's id is its file's name without the ending."""

    name: str
    docs: Path
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]


def load(name: str, scratch: Path, folder: Path = SHARED) -> LabelledSet:
    """Read one set; a set that is one packed file is written out into `scratch` as a file a document.

    Raises:
        FileNotFoundError: the sets are not beside the checkout.
    """
    place = folder / name
    queries = {}
    with (place / "queries.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            queries[row["id"]] = row["text"]
    qrels: dict[str, dict[str, int]] = {}
    with (place / "qrels.tsv").open(encoding="utf-8", newline="") as table:
        for row in csv.DictReader(table, delimiter="\t"):
            qrels.setdefault(row["query_id"], {})[row["doc_id"]] = int(row["grade"])
    docs = place / "docs"
    if not docs.is_dir():
        docs = _unpacked(place / "corpus.jsonl.gz", scratch / name)
    return LabelledSet(name, docs, queries, qrels)


def _unpacked(packed: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(packed, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            text = f"{row['title']}\n\n{row.get('text') or ''}"
            (folder / f"{row['id']}.txt").write_text(text, encoding="utf-8")
    return folder


def texts(labelled: LabelledSet) -> dict[str, str]:
    """Every document's text by its id."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(labelled.docs.iterdir())}
