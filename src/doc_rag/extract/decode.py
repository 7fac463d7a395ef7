"""Bytes of a text file to clean text: encodings, line ends, Unicode form, control characters.

What comes out can be stored by Postgres and shown: NFC, `\\n` line ends, no NUL or other control
character but tab and line feed, no lone surrogate. Raises `ExtractionError` for content that is no text.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from dataclasses import dataclass
from functools import cache

from doc_rag.errors import ExtractionError
from doc_rag.extract.legacy import decode_legacy

_SAMPLE_BYTES = 65_536
"""How much of a file is looked at to tell text from binary data."""

_MAX_CONTROL_SHARE = 0.02
"""Control characters in a text. Random bytes have about a tenth, text none."""

_BOMS = (
    # UTF-32 first: its little-endian mark begins with UTF-16's.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MAGIC = (
    (b"%PDF-", "a PDF"),
    (b"PK\x03\x04", "a ZIP archive or Office document"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x7fELF", "a program"),
    (b"\xd0\xcf\x11\xe0", "an old Office document"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"{\\rtf", "an RTF document"),
)
_TERMINAL_CODES = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[A-Za-z]|[()][A-Z0-9])")
"""Colours and cursor moves, as a log written for a terminal has them."""
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufeff]")
_MAX_COMBINING_RUN = 30
"""Combining marks in a row, as in Unicode's Stream-Safe Text Format. Normalising is quadratic in them."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Clean text, and what its reader should hear where the encoding is not certain."""

    text: str
    warning: str | None = None


def decode(data: bytes) -> Decoded:
    """Decode the bytes of a text file.

    Raises:
        ExtractionError: the content is binary, or in no encoding that can be told.
    """
    for magic, what in _MAGIC:
        if data.startswith(magic):
            raise ExtractionError(f"is {what} by its content, not text; give it the ending that fits")
    text, warning = _decode(data)
    if "\x1b" in text:
        text = _TERMINAL_CODES.sub("", text)
    controls = len(_CONTROLS.findall(text[:_SAMPLE_BYTES]))
    if controls > max(8, _MAX_CONTROL_SHARE * min(len(text), _SAMPLE_BYTES)):
        raise ExtractionError("looks like binary data, not text")
    return Decoded(clean(text), warning)


def clean(text: str) -> str:
    """Text as it may be stored: NFC, `\\n` line ends, control characters and lone surrogates removed."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    # A form feed, vertical tab or next-line parts words; the other controls only stand in them.
    text = text.replace("\f", " ").replace("\v", " ").replace("\x85", " ")
    text = _CONTROLS.sub("", text)
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return text
    return unicodedata.normalize("NFC", _long_combining_runs().sub(r"\1", text))


def clean_line(text: str, max_chars: int = 300) -> str:
    """A title, heading or tag as it may be stored: clean, on one line, at most `max_chars` long."""
    line = " ".join(clean(text[: 4 * max_chars]).split())
    return line if len(line) <= max_chars else line[: max_chars - 1].rstrip() + "…"


def _decode(data: bytes) -> tuple[str, str | None]:
    for mark, codec in _BOMS:
        if data.startswith(mark):
            # A file cut short ends in half a character; that is no reason to lose the rest.
            return data[len(mark) :].decode(codec, errors="replace"), None
    wide = _wide_codec(data)
    if wide:
        return data.decode(wide, errors="replace"), None
    if re.search(rb"\x1b\$[@B]", data[:_SAMPLE_BYTES]):
        # Japanese in seven bits is valid ASCII, so it must be tried first.
        try:
            return data.decode("iso2022_jp_2"), None
        except UnicodeDecodeError:
            pass
    try:
        return data.decode("utf-8"), None
    except UnicodeDecodeError as error:
        damaged = data.decode("utf-8", errors="replace")
        at_end = error.end >= len(data)
    # A bad byte in a long UTF-8 text (cut short, or with a passage pasted in) does not make it another encoding.
    wrong = damaged.count("\ufffd")
    right = len(damaged) - len(damaged.encode("ascii", "ignore")) - wrong
    if right >= 20 * wrong or (right and wrong == 1 and at_end):
        return damaged, "has bytes that are not UTF-8; they are shown as \ufffd"
    if b"\0" in data[:_SAMPLE_BYTES]:
        raise ExtractionError("looks like binary data, not text")
    text, codec = decode_legacy(data)
    return text, f"was read as {codec}, which is a guess; save it as UTF-8 if characters look wrong"


def _wide_codec(data: bytes) -> str | None:
    """UTF-16 or UTF-32 without a mark, known by where its zero bytes are."""
    sample = data[: min(len(data), _SAMPLE_BYTES) // 4 * 4]
    zeros = [sample[i::4].count(0) for i in range(4)]
    total, quarter = sum(zeros), len(sample) // 4
    if total < max(1, len(sample) // 50):
        return None
    if zeros[3] == quarter and zeros[2] > 0.9 * quarter > zeros[0]:
        codec = "utf-32-le"
    elif zeros[0] == quarter and zeros[1] > 0.9 * quarter > zeros[3]:
        codec = "utf-32-be"
    elif zeros[1] + zeros[3] > 0.9 * total:
        codec = "utf-16-le"
    elif zeros[0] + zeros[2] > 0.9 * total:
        codec = "utf-16-be"
    else:
        return None
    # Zeros alone may be padding in UTF-8 or a table of numbers: the text must make sense too.
    text = sample.decode(codec, errors="replace")
    strange = sum(1 for c in text if c == "\ufffd" or unicodedata.category(c) in ("Cn", "Co", "Cs", "Cc"))
    strange -= text.count("\n") + text.count("\r") + text.count("\t") + text.count("\f")
    return codec if strange * 50 <= len(text) else None


@cache
def _long_combining_runs() -> re.Pattern[str]:
    marks = "".join(chr(c) for c in range(0x300, 0x1E95F) if unicodedata.combining(chr(c)))
    return re.compile(f"([{marks}]{{{_MAX_COMBINING_RUN}}})[{marks}]+")
