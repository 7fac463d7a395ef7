"""HTML to text, with Beautiful Soup. Runs in the worker process. What a page shows, without its navigation."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

from doc_rag.extract.decode import clean_line, decode
from doc_rag.extract.front_matter import read_date, read_tags
from doc_rag.extract.writing import TextWriter
from doc_rag.records import Extracted

_UNSHOWN = frozenset(
    {
        "script",
        "style",
        "noscript",
        "template",
        "svg",
        "iframe",
        "object",
        "canvas",
        "nav",
        "footer",
        "head",
        "button",
    }
    | {"select", "dialog", "audio", "video", "math"}
)
_BLOCKS = frozenset(
    {
        "p",
        "div",
        "section",
        "article",
        "main",
        "header",
        "aside",
        "figure",
        "figcaption",
        "blockquote",
        "address",
    }
    | {
        "dl",
        "dt",
        "dd",
        "ul",
        "ol",
        "li",
        "pre",
        "table",
        "hr",
        "form",
        "fieldset",
        "details",
        "summary",
        "body",
    }
    | {"h1", "h2", "h3", "h4", "h5", "h6", "html"}
)


def extract_html(name: str, data: bytes) -> Extracted:
    """Read a page: headings, paragraphs, lists, tables and code; `<main>` alone where there is just one."""
    from bs4 import BeautifulSoup

    text, warning = _decoded(data)
    soup = BeautifulSoup(text, "html.parser")
    title = clean_line(soup.title.get_text()) if soup.title else ""
    published, tags = _metadata(soup)
    mains = soup.find_all("main")
    root = mains[0] if len(mains) == 1 else soup.body or soup
    reader = _Reader()
    reader.read(root)
    extracted = reader.writer.finish(title=title or None, document_date=published, tags=tags)
    return replace(extracted, warnings=(warning, *extracted.warnings)) if warning else extracted


def _decoded(data: bytes) -> tuple[str, str | None]:
    """The encoding a page declares, where its bytes are in it; else as for any text."""
    from bs4.dammit import EncodingDetector

    declared = EncodingDetector.find_declared_encoding(data, is_html=True)
    if declared and not data.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        try:
            return data.decode(declared), None
        except (UnicodeDecodeError, LookupError, ValueError):
            pass
    decoded = decode(data)
    return decoded.text, decoded.warning


def _metadata(soup: Any) -> tuple[date | None, tuple[str, ...]]:
    fields: dict[str, str] = {}
    for meta in soup.find_all("meta"):
        key = str(meta.get("name") or meta.get("property") or "").lower()
        fields.setdefault(key, str(meta.get("content") or ""))
    keys = ("article:published_time", "date", "dcterms.date", "dc.date")
    published = next((found for key in keys if (found := read_date(fields.get(key)))), None)
    return published, read_tags(fields.get("keywords", ""))


class _Reader:
    """Walks a page without recursion: nesting ten thousand deep is a page like any other."""

    def __init__(self) -> None:
        self.writer = TextWriter()
        self._inline: list[str] = []
        self._item: tuple[int, str] | None = None
        """Depth and sign of the list item whose text comes next, None where none does."""

    def read(self, root: Any) -> None:
        """Write everything that is shown below `root`."""
        # Entries are (node, depth of lists, sign of their items), or None: end what was gathered.
        stack: list[tuple[Any, int, str] | None] = [(root, 0, "-")]
        while stack:
            entry = stack.pop()
            if entry is None:
                self._flush()
                self._item = None
                continue
            node, depth, mark = entry
            name = getattr(node, "name", None)
            if name is None:
                # Comments and declarations are strings of other types.
                if type(node).__name__ == "NavigableString":
                    self._inline.append(str(node).replace("\n", " "))
            elif name == "br":
                self._inline.append("\n")
            elif name in _UNSHOWN or node.has_attr("hidden"):
                continue
            elif name in _BLOCKS:
                self._block(node, name, depth, mark, stack)
            else:
                stack.extend((child, depth, mark) for child in reversed(node.contents))
        self._flush()

    def _block(
        self, node: Any, name: str, depth: int, mark: str, stack: list[tuple[Any, int, str] | None]
    ) -> None:
        self._flush()
        if len(name) == 2 and name[1].isdigit():
            self.writer.heading(int(name[1]), _words(node))
        elif name == "pre":
            self.writer.code(node.get_text())
        elif name == "table" and not node.find("table") and node.find("tr"):
            rows = [[_words(cell) for cell in row.find_all(["td", "th"])] for row in node.find_all("tr")]
            self.writer.table([row for row in rows if any(row)])
        else:
            if name in ("ul", "ol"):
                depth, mark = depth + 1, "1." if name == "ol" else "-"
            elif name == "li":
                self._item = (max(depth - 1, 0), mark)
            stack.append(None)
            stack.extend((child, depth, mark) for child in reversed(node.contents))

    def _flush(self) -> None:
        text = "".join(self._inline)
        self._inline.clear()
        if not text.strip():
            return
        if self._item:
            self.writer.item(self._item[0], text, self._item[1])
            self._item = None
        else:
            self.writer.paragraph(text)


def _words(node: Any) -> str:
    return " ".join(node.get_text(" ").split())
