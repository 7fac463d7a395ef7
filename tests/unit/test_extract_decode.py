# ruff: noqa: RUF001 - the letters that look alike are the point.
"""Bytes become clean text in whatever encoding they are, or are said to be no text."""

from __future__ import annotations

import random
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doc_rag.errors import ExtractionError
from doc_rag.extract.decode import clean, clean_line, decode

GERMAN = "Die Straße ist schön und groß. Über Österreich fährt er später nach München.\n"


def storable(text: str) -> bool:
    """Whether Postgres takes it, and nothing in it is invisible but tabs and line ends."""
    text.encode("utf-8")
    return "\0" not in text and all(unicodedata.category(c) != "Cc" or c in "\n\t" for c in text)


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-32", "utf-8"])
def test_a_byte_order_mark_decides(codec: str) -> None:
    decoded = decode(GERMAN.encode(codec))
    assert (decoded.text, decoded.warning) == (GERMAN, None)


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("text", [GERMAN, "Привет, мир. Как дела сегодня?\n", "a\n"])
def test_wide_encodings_without_a_mark_are_known_by_their_zeros(codec: str, text: str) -> None:
    assert decode(text.encode(codec)).text == text


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        ("cp1252", "He said “no” – and left. It’s fine, café crème."),
        ("cp1252", "Voilà déjà l’été ; le garçon a mangé une crêpe. Où est l’œuvre ?"),
        ("latin-1", GERMAN),
        ("cp1250", "Příliš žluťoučký kůň úpěl ďábelské ódy. Dnes je krásný den v Praze."),
        ("cp1251", "Съешь же ещё этих мягких французских булок, да выпей чаю."),
        ("koi8-r", "Съешь же ещё этих мягких французских булок, да выпей чаю. Привет, мир. " * 5),
        ("cp1253", "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Καλημέρα κόσμε."),
        ("cp1254", "Pijamalı hasta yağız şoföre çabucak güvendi. Bugün hava çok güzel değil mi?"),
        ("cp1255", "דג סקרן שט בים מאוכזב ולפתע מצא לו חברה. שלום עולם"),
        ("cp1256", "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر"),
        ("shift_jis", "これは日本語の文章です。羅生門の下で雨やみを待っていた。"),
        ("euc_jp", "これは日本語の文章です。羅生門の下で雨やみを待っていた。"),
        ("iso2022_jp", "これは日本語の文章です。羅生門の下で雨やみを待っていた。"),
        ("euc_kr", "안녕하세요. 이것은 한국어 문장입니다. 오늘은 날씨가 좋습니다."),
        ("gbk", "这是一个中文句子。今天天气很好，我们去公园散步吧。"),
        ("big5", "這是一個中文句子。今天天氣很好，我們去公園散步吧。"),
        ("mac_roman", "Voilà déjà l’été ; le garçon a mangé une crêpe à l’hôtel."),
    ],
)
def test_legacy_encodings_are_recognised(codec: str, text: str) -> None:
    decoded = decode(text.encode(codec))
    assert decoded.text == unicodedata.normalize("NFC", text)
    assert codec == "iso2022_jp" or (decoded.warning and "which is a guess" in decoded.warning)


def test_letters_far_into_a_long_file_are_what_its_encoding_is_guessed_from() -> None:
    data = (
        b"plain words only.\n" * 20_000
        + "Où est l’œuvre du garçon ? Voilà déjà l’été.\n".encode("cp1252") * 3
    )
    assert decode(data).text.endswith("Où est l’œuvre du garçon ? Voilà déjà l’été.\n")


def test_utf8_with_a_damaged_place_stays_utf8() -> None:
    data = ("Привет, мир. " * 10).encode() + b"\xff" + "Как дела?".encode()
    decoded = decode(data)
    assert decoded.text == "Привет, мир. " * 10 + "\ufffdКак дела?"
    assert decoded.warning == "has bytes that are not UTF-8; they are shown as \ufffd"
    cut = ("Привет" * 3).encode()[:-1]
    assert decode(cut).text == ("Привет" * 3)[:-1] + "\ufffd"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"%PDF-1.7\n...", "is a PDF by its content"),
        (b"{\\rtf1\\ansi words}", "RTF document"),
        (b"PK\x03\x04" + b"\0" * 50, "ZIP archive or Office document"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "PNG image"),
        (bytes(range(256)) * 20, "binary data"),
        (b"\x01\x02\x03\x04" * 500, "binary data"),
        (b"abc\0\xff\xfe\xfd" * 100, "binary data"),
    ],
)
def test_binary_content_under_a_text_name_is_said_to_be_that(data: bytes, what: str) -> None:
    with pytest.raises(ExtractionError, match=what):
        decode(data)


def test_line_ends_and_control_characters_are_put_right() -> None:
    assert decode(b"a\r\nb\rc\nd").text == "a\nb\nc\nd"
    assert decode(b"page one\x0cpage two\x00\x08\x7f end\x1b").text == "page one page two end"
    assert clean("e\u0301\ufeff \ud835 \x85 x") == "é    x"


def test_a_log_in_colours_is_text_without_them() -> None:
    line = b"\x1b[31mERROR\x1b[0m \x1b[1;32mok\x1b[K\x1b[m done\n"
    assert decode(line * 100).text == "ERROR ok done\n" * 100


def test_text_is_composed_even_where_that_could_take_for_ever() -> None:
    start = time.monotonic()
    text = clean("e" + "\u0301\u0316" * 200_000 + " end")
    assert time.monotonic() - start < 5
    assert text.endswith(" end") and len(text) < 100
    assert unicodedata.is_normalized("NFC", text)


def test_a_title_is_one_line_of_bounded_length() -> None:
    assert clean_line("  a\n b\0\tc ") == "a b c"
    assert len(clean_line("word " * 500)) <= 300
    assert clean_line("word " * 500).endswith("…")


@given(st.binary(max_size=400))
def test_whatever_the_bytes_the_text_can_be_stored(data: bytes) -> None:
    try:
        text = decode(data).text
    except ExtractionError as error:
        assert str(error)
        return
    assert storable(text)
    assert unicodedata.is_normalized("NFC", text)


@given(st.text(st.characters(blacklist_categories=()), max_size=200))
def test_clean_text_can_be_stored_and_is_clean_already(text: str) -> None:
    once = clean(text)
    assert storable(once)
    assert clean(once) == once


@given(st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=200))
def test_utf8_is_never_taken_for_anything_else(text: str) -> None:
    assert decode(text.encode()).text == clean(text.lstrip("\ufeff"))


def test_random_bytes_are_refused_in_no_time() -> None:
    generator = random.Random(5)
    start = time.monotonic()
    refused = 0
    for _ in range(100):
        try:
            decode(generator.randbytes(generator.randrange(1_000, 20_000)))
        except ExtractionError:
            refused += 1
    assert refused == 100
    assert time.monotonic() - start < 10
