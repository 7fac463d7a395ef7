"""The extractors that run in the worker process, by kind.

A kind's library is imported when the first file of it comes.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from doc_rag.errors import ExtractionError
from doc_rag.records import Extracted

_WHERE = {
    "pdf": ("pdf", "extract_pdf"),
    "html": ("html", "extract_html"),
    "docx": ("docx", "extract_docx"),
    "csv": ("data", "extract_csv"),
    "json": ("data", "extract_json"),
    "notebook": ("notebook", "extract_notebook"),
}
KINDS = frozenset(_WHERE)


def extract(kind: str, name: str, data: bytes) -> Extracted:
    """Read one file of a kind in KINDS.

    Raises:
        ExtractionError: it cannot be read, or the library for its kind is not installed.
    """
    module, function = _WHERE[kind]
    read: Callable[[str, bytes], Extracted] = getattr(import_module(f"doc_rag.extract.{module}"), function)
    try:
        return read(name, data)
    except ModuleNotFoundError as error:
        raise ExtractionError(
            f"needs a library that is not installed ({error.name}): pip install 'doc-rag-mcp[formats]'"
        ) from error
