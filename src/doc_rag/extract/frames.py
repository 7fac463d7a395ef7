"""What the extraction worker and its parent agree on. A message is a length, then that many bytes."""

from __future__ import annotations

import struct
from dataclasses import asdict
from datetime import date
from typing import Any, BinaryIO

from doc_rag.records import Extracted, Section

HEADER = struct.Struct(">Q")

MEMORY_EXIT = 86
"""How a worker ends that found its memory used up and could not even say so."""


def out_of_memory(memory_mb: int) -> str:
    """Why a file that needs more than its share was given up."""
    return f"needs more than {memory_mb} MB of memory to be read (RAG_PDF_MEMORY_MB)"


def frame(payload: bytes) -> bytes:
    """One message as it goes over the pipe."""
    return HEADER.pack(len(payload)) + payload


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next message; None at the end of the stream, also in the middle of a message."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    length: int = HEADER.unpack(header)[0]
    payload = stream.read(length)
    return payload if len(payload) == length else None


def to_fields(extracted: Extracted) -> dict[str, Any]:
    """A document as JSON can carry it."""
    day = extracted.document_date
    sections = [[section.start, section.end, section.heading_path] for section in extracted.sections]
    return asdict(extracted) | {"sections": sections, "document_date": day.isoformat() if day else None}


def from_fields(fields: dict[str, Any]) -> Extracted:
    """The document that `to_fields` was given."""
    day = fields["document_date"]
    sections = tuple(Section(start, end, tuple(path)) for start, end, path in fields["sections"])
    lists = {name: tuple(fields[name]) for name in ("tags", "page_starts", "warnings")}
    return Extracted(
        **fields | lists | {"sections": sections, "document_date": date.fromisoformat(day) if day else None}
    )
