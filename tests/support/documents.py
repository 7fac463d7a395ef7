"""Builders of documents and folders, ordinary and odd."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

from fpdf import FPDF
from fpdf.enums import AccessPermission, XPos, YPos


def write(path: Path, text: str = "some words\n") -> Path:
    """A text file, with the folders it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


class Pdf(FPDF):
    """A PDF of A4 pages in Helvetica 11, with an optional running header and page numbers."""

    def __init__(self, header: str = "", numbered: bool = False, title: str = "") -> None:
        super().__init__(format="A4")
        self.header_text, self.numbered = header, numbered
        if title:
            self.set_title(title)
        self.set_font("helvetica", size=11)

    def header(self) -> None:
        if self.header_text:
            self.set_font("helvetica", size=9)
            self.cell(0, 6, self.header_text, new_x=XPos.LMARGIN, new_y=YPos.NEXT)
            self.ln(8)
            self.set_font("helvetica", size=11)

    def footer(self) -> None:
        if self.numbered:
            self.set_y(-15)
            self.set_font("helvetica", size=9)
            self.cell(0, 8, f"Page {self.page_no()} of {{nb}}", align="C")

    def heading(self, text: str, size: float = 16) -> None:
        self.set_font("helvetica", size=size)
        self.multi_cell(0, size * 0.5, text, new_x=XPos.LMARGIN, new_y=YPos.NEXT)
        self.ln(3)
        self.set_font("helvetica", size=11)

    def paragraph(self, text: str) -> None:
        self.multi_cell(0, 6, text, align="L", new_x=XPos.LMARGIN, new_y=YPos.NEXT)
        self.ln(4)

    def lines(self, *texts: str) -> None:
        """Lines set as they are, one below the other."""
        for text in texts:
            self.cell(0, 6, text, new_x=XPos.LMARGIN, new_y=YPos.NEXT)

    def data(self) -> bytes:
        return bytes(self.output())


def pdf_of(*pages: str) -> bytes:
    """A PDF with one paragraph a page; an empty text makes a blank page."""
    pdf = Pdf()
    for text in pages:
        pdf.add_page()
        if text:
            pdf.paragraph(text)
    return pdf.data()


def encrypted_pdf(text: str, user_password: str) -> bytes:
    """A PDF that is encrypted; with an empty password any reader opens it."""
    pdf = Pdf()
    pdf.set_encryption("owner", user_password, permissions=AccessPermission.none())
    pdf.add_page()
    pdf.paragraph(text)
    return pdf.data()


def raw_pdf(content: bytes, *, compress: bool = False, font: bytes = b"", to_unicode: bytes = b"") -> bytes:
    """A one-page PDF around a content stream, whose font /F1 is Helvetica or the dictionary given.

    With `to_unicode` (the body of a CMap) object 6 is that stream, to be named by `font`.
    """
    body = zlib.compress(content, 9) if compress else content
    filters = b"/Filter /FlateDecode " if compress else b""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< %s/Length %d >>\nstream\n%s\nendstream" % (filters, len(body), body),
        font or b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    if to_unicode:
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(to_unicode), to_unicode))
    return pdf_of_objects(objects)


def pdf_of_objects(objects: Sequence[bytes]) -> bytes:
    """A PDF file of numbered objects, the first being the catalogue."""
    data = bytearray(b"%PDF-1.7\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(data)
    data += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    data += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    data += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(data)


def slow_pdf(operations: int = 1_500_000) -> bytes:
    """A small file that takes its reader minutes: a stream of millions of words, compressed a thousandfold."""
    return raw_pdf(b"BT /F1 12 Tf " + b"1 0 0 1 50 700 Tm (word) Tj " * operations + b"ET", compress=True)


def mapped_pdf(mapping: dict[int, str], text: bytes) -> bytes:
    """A PDF whose font says what each byte of `text` means: one UTF-16 code unit or more."""
    lines = b"".join(
        b"<%02x> <%s>\n" % (code, meaning.encode("utf-16-be", "surrogatepass").hex().encode())
        for code, meaning in mapping.items()
    )
    cmap = (
        b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap\n"
        b"1 begincodespacerange <00> <ff> endcodespacerange\n"
        b"%d beginbfchar\n%sendbfchar\nendcmap end end" % (len(mapping), lines)
    )
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 6 0 R >>"
    return raw_pdf(b"BT /F1 12 Tf 50 700 Td (%s) Tj ET" % text, font=font, to_unicode=cmap)
