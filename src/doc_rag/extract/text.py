"""Plain text: one section, its paragraphs and sentences left to the chunker."""

from __future__ import annotations

from doc_rag.extract.decode import decode
from doc_rag.extract.front_matter import read_front_matter
from doc_rag.records import Extracted, Section


def extract_text(name: str, data: bytes) -> Extracted:
    """Read one text file. Front matter is taken as in Markdown. `name` is not used: every extractor is called alike."""
    decoded = decode(data)
    front = read_front_matter(decoded.text)
    return Extracted(
        text=decoded.text,
        sections=(Section(front.end, len(decoded.text)),),
        format="text",
        title=front.title,
        document_date=front.document_date,
        tags=front.tags,
        warnings=(decoded.warning,) if decoded.warning else (),
    )
