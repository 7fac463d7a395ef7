"""Real PDFs through the worker process: their text, their pages, and what is said of those without text."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from doc_rag.chunk import chunk_document
from doc_rag.errors import ExtractionError
from doc_rag.extract import Extractor
from tests.support.documents import Pdf, encrypted_pdf, mapped_pdf, pdf_of, pdf_of_objects, raw_pdf

PROSE = (
    "The mirror is washed once every eighteen months, or sooner when the reflectivity meter shows less than "
    "eighty-two per cent. Choose a day above fifteen degrees; cold glass and warm water crack. "
)


def test_paragraphs_headings_and_pages(extractor: Extractor) -> None:
    pdf = Pdf(header="Example Corp Handbook", numbered=True)
    for number in range(1, 5):
        pdf.add_page()
        pdf.heading(f"{number} Chapter")
        pdf.paragraph(PROSE * 2)
        pdf.paragraph(f"Only on sheet {number}. " + PROSE)
    extracted = extractor.extract("manual.pdf", pdf.data())
    assert "Handbook" not in extracted.text and "Page" not in extracted.text
    assert (PROSE * 2).strip() in extracted.text
    assert len(extracted.page_starts) == 4
    chunks = chunk_document(extracted, size=800, overlap=100)
    for number in range(1, 5):
        (chunk,) = [chunk for chunk in chunks if f"Only on sheet {number}." in chunk.content]
        assert (chunk.page_start, chunk.page_end) == (number, number)
        assert chunk.heading_path == (f"{number} Chapter",)
    assert extracted.warnings == () and not extracted.partial


def test_two_columns_are_read_one_after_the_other_and_their_words_put_together(extractor: Extractor) -> None:
    pdf = Pdf()
    pdf.add_page()
    columns = (
        [
            "Left column begins here and goes on",
            "to the edge with a hyphen at the mar-",
            "gin, then it ends, but not the sen-",
        ],
        ["tence, which goes on in the second", "column until it is done."],
    )
    for x, lines in zip((20, 110), columns, strict=True):
        for row, line in enumerate(lines):
            pdf.text(x, 40 + 6 * row, line)
    text = extractor.extract("columns.pdf", pdf.data()).text
    assert text == (
        "Left column begins here and goes on to the edge with a hyphen at the margin, then it ends, but not the "
        "sentence, which goes on in the second column until it is done."
    )


def test_a_sentence_over_a_page_break_is_one_chunk_with_both_pages(extractor: Extractor) -> None:
    pdf = Pdf()
    for lines in (
        ("A long sentence begins on the first page and is inter-",),
        ("rupted by the end of it, as they are.",),
    ):
        pdf.add_page()
        pdf.lines(*lines)
    (chunk,) = chunk_document(extractor.extract("a.pdf", pdf.data()), size=800, overlap=100)
    assert (
        chunk.content
        == "A long sentence begins on the first page and is interrupted by the end of it, as they are."
    )
    assert (chunk.page_start, chunk.page_end) == (1, 2)


def test_metadata_gives_the_title_only_where_a_person_wrote_it(extractor: Extractor) -> None:
    titles = []
    for title in ("A Real Title", "Microsoft Word - draft.doc", ""):
        pdf = Pdf(title=title)
        pdf.add_page()
        pdf.paragraph(PROSE)
        titles.append(extractor.extract("x.pdf", pdf.data()).title)
    assert titles == ["A Real Title", None, None]


def test_an_encrypted_file_is_read_where_the_password_is_empty(extractor: Extractor) -> None:
    assert "open to all" in extractor.extract("a.pdf", encrypted_pdf("This is open to all.", "")).text
    with pytest.raises(ExtractionError, match="needs a password; save a copy without one"):
        extractor.extract("a.pdf", encrypted_pdf("secret", "word"))


def picture() -> io.BytesIO:
    data = io.BytesIO()
    Image.new("RGB", (60, 60), "gray").save(data, "PNG")
    return data


def test_a_scan_is_said_to_need_ocr(extractor: Extractor) -> None:
    pdf = Pdf()
    pdf.add_page()
    pdf.image(picture(), 10, 10, 100)
    with pytest.raises(ExtractionError, match="looks scanned and needs OCR"):
        extractor.extract("scan.pdf", pdf.data())


def test_scanned_pages_among_others_are_named_and_blank_ones_are_not(extractor: Extractor) -> None:
    pdf = Pdf()
    for kind in ("text", "scan", "scan", "blank", "text", "scan"):
        pdf.add_page()
        if kind == "text":
            pdf.paragraph(PROSE)
        elif kind == "scan":
            pdf.image(picture(), 10, 10, 100)
    extracted = extractor.extract("a.pdf", pdf.data())
    assert extracted.warnings == (
        "found no text on pages 2-3 and 6: scanned, perhaps; OCR would make it searchable",
    )
    assert extracted.partial
    assert len(extracted.page_starts) == 6


def test_half_characters_and_nul_in_a_font_do_not_reach_the_text(extractor: Extractor) -> None:
    mapping = (
        {65: "\0", 66: "\ud835", 67: "ﬁ", 68: "e\u0301"}
        | {code: chr(code) for code in range(97, 123)}
        | {32: " "}
    )
    text = extractor.extract("a.pdf", mapped_pdf(mapping, b"before A B Celd caD after")).text
    assert text == "before field caé after"


def test_the_fonts_glyph_names_are_said_to_be_unreadable(extractor: Extractor) -> None:
    extracted = extractor.extract("a.pdf", raw_pdf(b"BT /F1 12 Tf 50 700 Td (/G43/G24/G14 /G44/G13) Tj ET"))
    assert "looks unreadable" in extracted.warnings[0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"is empty \(0 bytes\)"),
        (b"%PDF-1.4 cut off", "is damaged, or no PDF at all"),
        (b"Not a PDF, only a name.", "is damaged, or no PDF at all"),
        (pdf_of("words")[:300], "is damaged"),
        (
            pdf_of_objects([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [] /Count 0 >>"]),
            "has no pages",
        ),
        (
            pdf_of_objects(
                [b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"]
            ),
            "damaged|no pages",
        ),
    ],
)
def test_a_broken_file_is_an_error_that_says_so(extractor: Extractor, data: bytes, message: str) -> None:
    with pytest.raises(ExtractionError, match=message):
        extractor.extract("a.pdf", data)


def test_a_page_that_cannot_be_read_costs_only_itself(extractor: Extractor) -> None:
    data = pdf_of_objects(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R 4 0 R] /Count 2 >>",
            b"<< /Type /Page /Parent 2 0 R /Contents 5 0 R /Resources << /Font << /F1 6 0 R >> >> >>",
            b"<< /Type /Page /Parent 2 0 R /Contents 7 0 R /Resources << /Font << /F1 6 0 R >> >> >>",
            b"<< /Length 41 >>\nstream\nBT /F1 12 Tf 50 700 Td (good page) Tj ET \nendstream",
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
            b"<< /Length 9 /Filter /NoSuchFilter >>\nstream\nxxxxxxxxx\nendstream",
        ]
    )
    extracted = extractor.extract("a.pdf", data)
    assert extracted.text == "good page"
    assert extracted.partial and extracted.warnings[0].startswith("could not read page 2: ")
