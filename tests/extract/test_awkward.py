"""Every file of the shared awkward set gives its expected text or its expected message."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import pytest

from doc_rag.chunk import chunk_document
from doc_rag.errors import ExtractionError
from doc_rag.extract import Extractor
from doc_rag.sources import read_source, walk


@dataclass(frozen=True)
class Row:
    name: str
    fragment: str
    kind: str


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> list[Row]:
    shared: Path = request.getfixturevalue("shared")
    lines = (shared / "awkward" / "INDEX.md").read_text(encoding="utf-8").splitlines()
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")
    ]
    return [Row(row[0].strip("`"), row[6].strip("`"), row[7]) for row in cells]


def searchable(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text.replace("\0", "")).split())


def test_each_file_gives_what_the_index_says(rows: list[Row], shared: Path, extractor: Extractor) -> None:
    found = walk(shared / "awkward" / "files", (".md", ".txt", ".pdf"), max_file_bytes=10**8)
    assert sorted(source.name for source in found.sources) == sorted(row.name for row in rows)
    by_name = {row.name: row for row in rows}
    wrong = []
    for source in found.sources:
        row = by_name[source.name]
        try:
            extracted = extractor.extract(source.name, read_source(source, 10**8)[0])
        except ExtractionError as error:
            assert len(str(error)) > 10 and "Traceback" not in str(error)
            if row.kind == "ok":
                wrong.append((row.name, str(error)))
            continue
        chunks = chunk_document(extracted, size=800, overlap=100)
        text = "".join(chunk.content for chunk in chunks)
        # What the store and the protocol ask of a text: JSON and UTF-8, without NUL.
        assert "\0" not in text and json.loads(json.dumps(text)).encode("utf-8").decode("utf-8") == text
        if row.kind in ("error", "empty") or not chunks:
            wrong.append((row.name, f"{len(chunks)} chunks"))
        elif row.kind == "ok" and not any(searchable(row.fragment) in searchable(c.content) for c in chunks):
            wrong.append((row.name, "fragment not found"))
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("bom-heading.md", "Heading"),
        ("commonmark-spec.md", "CommonMark Spec"),
        ("two-column-hyphenated.pdf", "Two-Column Document with Lorem Ipsum"),
        ("glyph-names-garbage.pdf", None),
    ],
)
def test_titles(shared: Path, extractor: Extractor, name: str, title: str | None) -> None:
    data = (shared / "awkward" / "files" / name).read_bytes()
    assert extractor.extract(name, data).title == title


def test_front_matter_is_not_in_a_passage_and_fences_hold_no_sections(
    shared: Path, extractor: Extractor
) -> None:
    files = shared / "awkward" / "files"
    spec = extractor.extract("commonmark-spec.md", (files / "commonmark-spec.md").read_bytes())
    chunks = chunk_document(spec, size=800, overlap=100)
    assert "license:" not in chunks[0].content
    assert {path[0] for path in (chunk.heading_path for chunk in chunks) if path} >= {
        "Introduction",
        "Inlines",
    }
    assert not any("foo" in part for chunk in chunks for part in chunk.heading_path)
    toml = extractor.extract("a.md", (files / "front-matter-toml.md").read_bytes())
    assert all("+++" not in chunk.content for chunk in chunk_document(toml, size=800, overlap=100))


def test_two_columns_have_their_broken_words_put_together(shared: Path, extractor: Extractor) -> None:
    data = (shared / "awkward" / "files" / "two-column-hyphenated.pdf").read_bytes()
    text = extractor.extract("a.pdf", data).text
    assert "consectetuer adipiscing elit" in text and "Phasellus adipiscing semper elit" in text
    assert "filled with Lorem" in text and "-\n" not in text
