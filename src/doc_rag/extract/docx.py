"""Word documents (.docx) to text, with python-docx. Runs in the worker process.

The text as it stands with all changes accepted: what was inserted is in, what was deleted is not. Notes stand
at the end; headers, footers and comments are left out.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from datetime import date
from typing import Any

from doc_rag.errors import ExtractionError
from doc_rag.extract.decode import clean_line
from doc_rag.extract.front_matter import read_date, read_tags
from doc_rag.extract.writing import TextWriter
from doc_rag.records import Extracted

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_OLD_OFFICE = b"\xd0\xcf\x11\xe0"


def extract_docx(name: str, data: bytes) -> Extracted:
    """Read one document: headings by their style, paragraphs, lists and tables.

    Raises:
        ExtractionError: damaged, encrypted, or an old .doc under another name.
    """
    if not data:
        raise ExtractionError("is empty (0 bytes)")
    if data.startswith(_OLD_OFFICE):
        raise ExtractionError("needs a password, or is an old .doc file; save it as .docx without one")
    from docx import Document

    try:
        document = Document(io.BytesIO(data))
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ExtractionError(f"is damaged, or no Word document: {clean_line(str(error), 120)}") from error
    writer = TextWriter()
    levels = _heading_levels(document)
    for element in _content(document.element.body):
        if element.tag == f"{_W}tbl":
            writer.table(list(_rows(element)))
        else:
            _write_paragraph(writer, element, levels)
    for number, note in _notes(document):
        writer.paragraph(f"[{number}] {note}")
    properties = document.core_properties
    title = clean_line(properties.title or "") or None
    return writer.finish(
        title=title, document_date=_date(properties), tags=read_tags(properties.keywords or "")
    )


def _content(body: Any) -> Iterator[Any]:
    """The paragraphs and tables in their order, also those inside content controls."""
    stack = list(reversed(body))
    while stack:
        element = stack.pop()
        if element.tag in (f"{_W}p", f"{_W}tbl"):
            yield element
        elif element.tag in (f"{_W}sdt", f"{_W}sdtContent", f"{_W}ins", f"{_W}customXml", f"{_W}smartTag"):
            stack.extend(reversed(element))


def _heading_levels(document: Any) -> dict[str, int]:
    """Style ids that are headings, with their level. Names of built-in styles are English in every language."""
    levels: dict[str, int] = {}
    for style in document.styles:
        name = (style.name or "").lower()
        match = re.fullmatch(r"heading (\d)", name)
        if match:
            levels[style.style_id] = int(match[1])
        elif name == "title":
            levels[style.style_id] = 1
    return levels


def _write_paragraph(writer: TextWriter, paragraph: Any, levels: dict[str, int]) -> None:
    text = _text(paragraph)
    style = paragraph.find(f"{_W}pPr/{_W}pStyle")
    style_id = style.get(f"{_W}val", "") if style is not None else ""
    level = levels.get(style_id)
    outline = paragraph.find(f"{_W}pPr/{_W}outlineLvl")
    if level is None and outline is not None and outline.get(f"{_W}val", "9") in tuple("012345678"):
        level = int(outline.get(f"{_W}val")) + 1
    numbering = paragraph.find(f"{_W}pPr/{_W}numPr")
    if level:
        writer.heading(level, text)
    elif numbering is not None or style_id.startswith("List"):
        depth = numbering.find(f"{_W}ilvl") if numbering is not None else None
        value = depth.get(f"{_W}val", "0") if depth is not None else "0"
        writer.item(int(value) if value.isdigit() else 0, text)
    else:
        writer.paragraph(text)


def _text(paragraph: Any) -> str:
    """The words of a paragraph, with those of links, insertions and text boxes, without deletions."""
    parts: list[str] = []
    stack = list(reversed(paragraph))
    while stack:
        element = stack.pop()
        if element.tag == f"{_W}t":
            parts.append(element.text or "")
        elif element.tag in (f"{_W}tab", f"{_W}noBreakHyphen"):
            parts.append("\t" if element.tag.endswith("tab") else "-")
        elif element.tag in (f"{_W}br", f"{_W}cr"):
            parts.append("\n")
        elif element.tag not in (f"{_W}del", f"{_W}moveFrom", f"{_W}pPr", f"{_W}rPr", _FALLBACK):
            # A paragraph in here is that of a text box; its words must not run into these.
            if element.tag == f"{_W}p" and parts:
                parts.append("\n")
            stack.extend(reversed(element))
    return "".join(parts)


def _rows(table: Any) -> Iterator[list[str]]:
    for row in table.findall(f"{_W}tr"):
        cells = [" ".join(_text(p) for p in cell.iter(f"{_W}p")) for cell in row.findall(f"{_W}tc")]
        if any(cell.strip() for cell in cells):
            yield cells


def _notes(document: Any) -> Iterator[tuple[str, str]]:
    """Foot- and endnotes, which stand in parts of their own: (number, text)."""
    from docx.oxml import parse_xml

    for relation in document.part.rels.values():
        kind = relation.reltype.rsplit("/", 1)[-1]
        if kind in ("footnotes", "endnotes") and not relation.is_external:
            for note in parse_xml(relation.target_part.blob):
                # Those of a type are the lines that separate notes from the text.
                if note.get(f"{_W}type") is None:
                    yield note.get(f"{_W}id", ""), " ".join(_text(p) for p in note.iter(f"{_W}p"))


def _date(properties: Any) -> date | None:
    # The template's own date is not the document's.
    found = read_date(properties.created)
    return found if found and found.year > 2013 else None
