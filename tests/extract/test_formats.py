# ruff: noqa: RUF001 - the letters that look alike are the point.
"""The formats that RAG_EXTENSIONS adds: each gives clean text, its headings and what it says of itself."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from datetime import date, datetime
from typing import Any

import docx
import pytest
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls

from doc_rag.chunk import chunk_document
from doc_rag.errors import ExtractionError
from doc_rag.extract import Extractor, risky
from doc_rag.extract.outlines import extract_rst
from doc_rag.records import Extracted
from doc_rag.setting_values import DEFAULT_EXTENSIONS, MORE_EXTENSIONS


def outline(extracted: Extracted) -> list[tuple[tuple[str, ...], str]]:
    return [(s.heading_path, extracted.text[s.start : s.end].strip()) for s in extracted.sections]


def test_every_ending_that_the_settings_know_can_be_read(extractor: Extractor) -> None:
    for ending in DEFAULT_EXTENSIONS + MORE_EXTENSIONS:
        try:
            assert extractor.extract(f"a{ending}", b"words\n").text
        except ExtractionError as error:
            assert "cannot be read" not in str(error) and ending in (".pdf", ".docx", ".ipynb")
    with pytest.raises(ExtractionError, match=r"an ending that cannot be read \(.xyz\)"):
        extractor.extract("a.xyz", b"words\n")


# --- HTML ---------------------------------------------------------------------------------------------

PAGE = """<!doctype html><html><head><title>The title</title><meta name="keywords" content="one, two">
<meta property="article:published_time" content="2026-01-31T10:00:00Z"><style>p {}</style></head>
<body><nav><a href="/">Home</a></nav><h1>Guide</h1><p>First <b>bold</b> words,<br>a new line.</p>
<!-- a comment --><script>alert(1)</script><h2>Lists &amp; tables</h2>
<ul><li>one<ul><li>inner</li></ul></li><li><p>two</p><p>more of two</p></li></ul>
<ol><li>step</li></ol>
<table><tr><th>a</th><th>b|c</th></tr><tr><td>1</td><td>2</td></tr></table>
<pre>x = 1
  y = 2</pre><div hidden>unseen</div><div>text <span>in</span> a <i>div</i><p>and after</p></div>
<p># not a heading</p><footer>Imprint</footer></body></html>"""


def test_html(extractor: Extractor) -> None:
    extracted = extractor.extract("a.html", PAGE.encode())
    assert extracted.title == "Guide"
    assert (extracted.document_date, extracted.tags) == (date(2026, 1, 31), ("one", "two"))
    assert outline(extracted) == [
        (("Guide",), "# Guide\n\nFirst bold words,\na new line."),
        (
            ("Guide", "Lists & tables"),
            "## Lists & tables\n\n- one\n  - inner\n- two\n\nmore of two\n\n1. step\n\n"
            "| a | b\\|c |\n|---|---|\n| 1 | 2 |\n\n```\nx = 1\n  y = 2\n```\n\n"
            "text in a div\n\nand after\n\n# not a heading",
        ),
    ]


def test_html_of_a_declared_encoding_and_with_one_main_part(extractor: Extractor) -> None:
    page = '<meta charset="windows-1251"><body><p>меню</p><main><p>Привет, мир</p></main></body>'
    assert extractor.extract("a.htm", page.encode("cp1251")).text == "Привет, мир"
    wrong = '<meta charset="utf-8"><title>Café</title><body><p>Déjà vu à l’hôtel, garçon.</p>'
    assert extractor.extract("a.html", wrong.encode("cp1252")).text == "Déjà vu à l’hôtel, garçon."


@pytest.mark.parametrize(
    "page", ["<div>" * 8_000 + "deep", "<ul><li>" * 5_000 + "deep", "<p>deep" + "<b>" * 8_000]
)
def test_html_nested_without_end(page: str) -> None:
    with Extractor(pdf_timeout_seconds=20, pdf_memory_mb=1024) as extractor:
        assert "deep" in extractor.extract("a.html", page.encode()).text


def test_html_without_text_is_said_to_have_none(extractor: Extractor) -> None:
    with pytest.raises(ExtractionError, match="has no text in it"):
        extractor.extract("a.html", b"<html><script>var a = 1;</script><nav>menu</nav></html>")


# --- Word -----------------------------------------------------------------------------------------------


def word_document() -> bytes:
    document = docx.Document()
    document.core_properties.title = "From the properties"
    document.core_properties.keywords = "red; green"
    document.core_properties.created = datetime(2026, 1, 31)
    document.add_heading("Handbook", 1)
    document.add_paragraph("Before the change.")
    changed = document.add_paragraph("It was ")
    changed._p.append(parse_xml(f"<w:ins {nsdecls('w')}><w:r><w:t>added</w:t></w:r></w:ins>"))
    changed._p.append(parse_xml(f"<w:del {nsdecls('w')}><w:r><w:delText>gone</w:delText></w:r></w:del>"))
    document.add_heading("Lists", 2)
    document.add_paragraph("first", style="List Bullet")
    document.add_paragraph("second", style="List Number")
    table = document.add_table(2, 2)
    for cell, text in zip(
        (cell for row in table.rows for cell in row.cells), ("a", "b", "1", "2"), strict=True
    ):
        cell.text = text
    control = (
        f"<w:sdt {nsdecls('w')}><w:sdtContent><w:p><w:r><w:t>In a control</w:t></w:r></w:p></w:sdtContent>"
    )
    document.element.body.insert(len(document.element.body) - 1, parse_xml(control + "</w:sdt>"))
    document.sections[0].header.paragraphs[0].text = "Running header"
    data = io.BytesIO()
    document.save(data)
    return data.getvalue()


def test_word(extractor: Extractor) -> None:
    extracted = extractor.extract("a.docx", word_document())
    assert outline(extracted) == [
        (("Handbook",), "# Handbook\n\nBefore the change.\n\nIt was added"),
        (
            ("Handbook", "Lists"),
            "## Lists\n\n- first\n- second\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nIn a control",
        ),
    ]
    assert (extracted.title, extracted.document_date) == ("Handbook", date(2026, 1, 31))
    assert extracted.tags == ("red", "green")


def test_notes_of_a_word_document_stand_at_its_end(extractor: Extractor) -> None:
    document = docx.Document()
    document.add_paragraph("Claimed without proof.")
    notes = (
        f'<w:footnotes {nsdecls("w")}><w:footnote w:type="separator" w:id="-1"><w:p/></w:footnote>'
        '<w:footnote w:id="1"><w:p><w:r><w:t>The proof is here.</w:t></w:r></w:p></w:footnote></w:footnotes>'
    )
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"
    part = Part(PackURI("/word/footnotes.xml"), kind, notes.encode(), document.part.package)
    document.part.relate_to(part, RELATIONSHIP_TYPE.FOOTNOTES)
    data = io.BytesIO()
    document.save(data)
    assert (
        extractor.extract("a.docx", data.getvalue()).text
        == "Claimed without proof.\n\n[1] The proof is here."
    )


def zipped(files: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return data.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no zip", "is damaged, or no Word document"),
        (zipped({"a.txt": b"words"}), "is damaged"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 100, "needs a password, or is an old .doc"),
        (word_document()[:3_000], "is damaged"),
    ],
)
def test_what_is_no_word_document_is_said_to_be_none(extractor: Extractor, data: bytes, message: str) -> None:
    with pytest.raises(ExtractionError, match=message):
        extractor.extract("a.docx", data)


def test_a_word_document_that_unpacks_to_gigabytes_costs_only_itself() -> None:
    with zipfile.ZipFile(io.BytesIO(word_document())) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    head, tail = files["word/document.xml"].split(b"<w:body>", 1)
    files["word/document.xml"] = head + b"<w:body>" + b"<w:p><w:r><w:t>x</w:t></w:r></w:p>" * 3_000_000 + tail
    with Extractor(pdf_timeout_seconds=30, pdf_memory_mb=256) as extractor:
        with pytest.raises(ExtractionError, match=r"RAG_PDF_MEMORY_MB|RAG_PDF_TIMEOUT_SECONDS|is damaged"):
            extractor.extract("bomb.docx", zipped(files))
        assert extractor.extract("a.docx", word_document()).title == "Handbook"


# --- data -----------------------------------------------------------------------------------------------


def test_csv_rows_name_their_columns_on_the_lines_they_end_on(extractor: Extractor) -> None:
    text = 'name,age,note\r\nAnn,36,"two\r\nlines"\r\nBob,,short\r\n\r\n"Eve",1,x,extra\r\n'
    extracted = extractor.extract("a.csv", text.encode())
    assert extracted.text.split("\n") == [
        "name | age | note",
        "",
        "name: Ann; age: 36; note: two lines",
        "name: Bob; note: short",
        "",
        "name: Eve; age: 1; note: x; extra",
        "",
    ]
    (chunk,) = chunk_document(extracted, size=800, overlap=0)
    assert (chunk.line_start, chunk.line_end) == (1, 6)


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_csv_of_other_delimiters(extractor: Extractor, delimiter: str) -> None:
    text = f"name{delimiter}amount, net\nAnn{delimiter}1,5\nBob{delimiter}2,5\n"
    assert "name: Bob; amount, net: 2,5" in extractor.extract("a.csv", text.encode()).text


def test_csv_without_a_header_keeps_its_values(extractor: Extractor) -> None:
    assert extractor.extract("a.csv", b"1,2,3\n4,5,6\n").text == "1; 2; 3\n4; 5; 6\n"
    assert extractor.extract("a.csv", b'"one long cell ' + b"x" * 300_000 + b'"\nb\n').text.startswith(
        "one long cell x"
    )


def test_json_is_written_anew_only_where_it_cannot_be_read_as_it_is(extractor: Extractor) -> None:
    kept = '{"a": "b",\n   "c": [1, 2]}\n'
    assert extractor.extract("a.json", kept.encode()).text == kept
    assert "Привет" in extractor.extract("a.json", json.dumps({"word": "Привет"}).encode()).text
    long = json.dumps([{"key": f"value {i}"} for i in range(500)])
    assert extractor.extract("a.json", long.encode()).text.count("\n") > 500
    broken = extractor.extract("a.json", b'{"a": "\\u0041", ')
    assert broken.warnings == ("is not valid JSON; it is indexed as plain text",)
    nul = extractor.extract("a.json", b'{"a": "x\\u0000y\\ud835z"}')
    assert '"xyz"' in nul.text
    assert extractor.extract("a.json", b"[" * 50_000 + b"1").text.startswith("[[")


def test_yaml_is_kept_with_its_comments(extractor: Extractor) -> None:
    text = "# why\nkey: value\nlist:\n  - a\n"
    extracted = extractor.extract("a.yml", text.encode())
    assert (extracted.text, outline(extracted)) == (text, [((), text.strip())])


def notebook(*cells: dict[str, Any], **more: Any) -> bytes:
    return json.dumps(
        {"cells": cells, "nbformat": 4, "metadata": {"language_info": {"name": "julia"}}} | more
    ).encode()


def test_notebooks_become_markdown(extractor: Extractor) -> None:
    data = notebook(
        {"cell_type": "markdown", "source": ["# Study\n", "\n", "Words."]},
        {"cell_type": "code", "source": "x = '```'\nprint(x)", "outputs": [{"text": "OUTPUT"}]},
        {"cell_type": "code", "source": []},
        {"cell_type": "raw", "source": "raw words"},
    )
    extracted = extractor.extract("a.ipynb", data)
    assert extracted.text == "# Study\n\nWords.\n\n````julia\nx = '```'\nprint(x)\n````\n\nraw words\n"
    assert extracted.title == "Study"
    old = {
        "worksheets": [
            {
                "cells": [
                    {"cell_type": "heading", "level": 2, "source": "H"},
                    {"cell_type": "code", "input": "y"},
                ]
            }
        ]
    }
    assert extractor.extract("a.ipynb", json.dumps(old).encode()).text == "## H\n\n```python\ny\n```\n"


@pytest.mark.parametrize(
    "data", [b"no json", b"[]", b"{}", b'{"cells": 5}', b'{"cells": [5, {"source": 7}]}', b"[" * 90_000]
)
def test_what_is_no_notebook_is_said_to_be_none(extractor: Extractor, data: bytes) -> None:
    with pytest.raises(ExtractionError, match=r"no notebook|not a notebook"):
        extractor.extract("a.ipynb", data)


# --- outlines -------------------------------------------------------------------------------------------


def test_restructured_text(extractor: Extractor) -> None:
    text = (
        "=======\nManual\n=======\n\nIntro.\n\n.. note:: kept\n\nInstall\n=======\n\nRun::\n\n   code\n\n"
        "On ``Linux``\n------------\n\nWords.\n\nTables\n======\n\n"
        "==== ====\na    b\n==== ====\n1    2\n==== ====\n\n- item\n"
    )
    extracted = extractor.extract("a.rst", text.encode())
    assert extracted.text == text
    assert extracted.title == "Manual"
    assert [path for path, _ in outline(extracted)] == [
        ("Manual",),
        ("Manual", "Install"),
        ("Manual", "Install", "On Linux"),
        ("Manual", "Tables"),
    ]


def test_org(extractor: Extractor) -> None:
    text = (
        "#+TITLE: My notes\n#+DATE: <2026-01-31 Sat>\n#+FILETAGS: :home:garden:\n\n* TODO [#A] First :tag:\nA\n"
        "** Deeper\nB\n#+BEGIN_SRC org\n* no heading\n#+END_SRC\n* Second\n*bold* words\n"
    )
    extracted = extractor.extract("a.org", text.encode())
    assert (extracted.title, extracted.document_date, extracted.tags) == (
        "My notes",
        date(2026, 1, 31),
        ("home", "garden"),
    )
    assert [path for path, _ in outline(extracted)][1:] == [("First",), ("First", "Deeper"), ("Second",)]


def test_asciidoc(extractor: Extractor) -> None:
    text = (
        "= The Book\n:revdate: 2026-01-31\n:keywords: one, two words\n\nIntro.\n\n== Part\n\n"
        "----\n== no heading\n----\n\n"
        "A\n\n=== Deeper\n\nB\n\n== Next\n\n====\nExample block\n====\n"
    )
    extracted = extractor.extract("a.adoc", text.encode())
    assert (extracted.title, extracted.document_date, extracted.tags) == (
        "The Book",
        date(2026, 1, 31),
        ("one", "two words"),
    )
    assert [path for path, _ in outline(extracted)] == [
        ("The Book",),
        ("The Book", "Part"),
        ("The Book", "Part", "Deeper"),
        ("The Book", "Next"),
    ]


@pytest.mark.parametrize(
    "text", ["a\n=\n" * 30_000, "=" * 1_000_000, "=\n" * 60_000, "a\n" * 500_000, "\n" * 1_000_000]
)
def test_restructured_text_without_end(text: str) -> None:
    assert extract_rst("a.rst", text.encode()).text == text


@pytest.mark.parametrize(("kind", "library"), [("html", "bs4"), ("docx", "docx")])
def test_a_missing_library_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch, kind: str, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        ExtractionError, match=rf"not installed \({library}\): pip install 'doc-rag-mcp\[formats\]'"
    ):
        risky.extract(kind, f"a.{kind}", b"<p>words</p>")
