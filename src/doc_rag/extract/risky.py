"""The extractors that run in the worker process, by kind: each takes a name and bytes and gives a dictionary
of `Extracted`'s fields. Their libraries are imported when a file of the kind comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _pdf(name: str, data: bytes) -> dict[str, Any]:
    from doc_rag.extract.pdf import extract_pdf

    return extract_pdf(data)


EXTRACTORS: dict[str, Callable[[str, bytes], dict[str, Any]]] = {"pdf": _pdf}
