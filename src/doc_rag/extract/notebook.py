"""Jupyter notebooks: their text and code cells as Markdown. Outputs are left out: they repeat, and hold images."""

from __future__ import annotations

import json
from typing import Any

from doc_rag.errors import ExtractionError
from doc_rag.extract.decode import clean, decode
from doc_rag.extract.headings import cut_at_headings, first_title
from doc_rag.extract.markdown import find_headings
from doc_rag.records import Extracted


def extract_notebook(name: str, data: bytes) -> Extracted:
    """Read a notebook of format 3 or 4.

    Raises:
        ExtractionError: it is no notebook, or has no cells.
    """
    decoded = decode(data)
    try:
        notebook = json.loads(decoded.text)
    except (ValueError, RecursionError) as error:
        raise ExtractionError(f"is not a notebook: it is no valid JSON ({str(error)[:100]})") from error
    language = _language(notebook) if isinstance(notebook, dict) else ""
    parts = [part for cell in _cells(notebook) if (part := _part(cell, language))]
    if not parts:
        raise ExtractionError("is a notebook without text or code, or no notebook at all")
    text = clean("\n\n".join(parts) + "\n")
    headings = find_headings(text)
    sections, warnings = cut_at_headings(text, 0, headings)
    return Extracted(
        text=text,
        sections=sections,
        format="markdown",
        title=first_title(headings),
        warnings=((decoded.warning,) if decoded.warning else ()) + warnings,
    )


def _cells(notebook: Any) -> list[Any]:
    if not isinstance(notebook, dict):
        return []
    cells = notebook.get("cells")
    if not isinstance(cells, list):
        sheets = notebook.get("worksheets")
        found = (
            [sheet.get("cells") for sheet in sheets if isinstance(sheet, dict)]
            if isinstance(sheets, list)
            else []
        )
        cells = [cell for part in found if isinstance(part, list) for cell in part]
    return cells


def _language(notebook: dict[str, Any]) -> str:
    metadata = notebook.get("metadata")
    info = metadata.get("language_info") if isinstance(metadata, dict) else None
    name = info.get("name") if isinstance(info, dict) else None
    return name if isinstance(name, str) and name.isidentifier() else "python"


def _part(cell: Any, language: str) -> str:
    if not isinstance(cell, dict):
        return ""
    source = cell.get("source", cell.get("input", ""))
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    if not isinstance(source, str) or not source.strip():
        return ""
    kind = cell.get("cell_type")
    if kind == "heading":
        level = cell.get("level")
        return "#" * (level if isinstance(level, int) and 1 <= level <= 6 else 1) + " " + source.strip()
    if kind != "code":
        return source.strip("\n")
    fence = "```"
    while fence in source:
        fence += "`"
    return f"{fence}{language}\n{source.strip(chr(10))}\n{fence}"
