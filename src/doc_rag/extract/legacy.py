"""Which of the encodings before Unicode a text is in. Called by `decode`.

`charset-normalizer` is asked, on the lines that tell most; where it cannot tell neighbours apart, the
letters of the languages written in them decide.
"""

from __future__ import annotations

import re

from doc_rag.errors import ExtractionError

SAMPLE_BYTES = 65_536
"""How much of a file the encoding is guessed from: a guess tries dozens of codecs on all it is given."""

_COMMON = (
    *("cp1252", "cp1250", "iso8859_2", "cp1251", "koi8_r", "cp1253"),
    *("cp1254", "cp1255", "cp1256", "cp1257", "mac_roman"),
)
"""Single-byte encodings by how often files are in them. Short texts fit many equally well."""

_WESTERN_LETTERS = frozenset("àâäáãåæçéèêëíìîïñóòôöõøúùûüßÿœ" + "àâäáãåæçéèêëíìîïñóòôöõøúùûüœ".upper())
_WESTERN_SIGNS = frozenset(
    "\u2018\u2019\u201c\u201d\u201e\u201a\u2013\u2014\u2022\u2026\u20ac\u2122\u00a0¡¿«»§°©®£·½¼¾±\u00d7"
)


def decode_legacy(data: bytes) -> tuple[str, str]:
    """The text of bytes that are not Unicode, and the encoding they were taken to be in.

    Raises:
        ExtractionError: no encoding fits.
    """
    from charset_normalizer import from_bytes

    sample = _telling_lines(data)
    if _is_western(sample):
        return data.decode("cp1252", errors="replace"), "cp1252"
    matches = from_bytes(sample)
    best = matches.best()
    if best is None:
        raise ExtractionError("is in no text encoding that can be recognised; save it as UTF-8")
    fits = {m.encoding for m in matches if m.chaos <= best.chaos and m.coherence >= best.coherence - 0.01}
    candidates = [name for name in _COMMON if name in fits]
    if {"cp1252", "cp1254"} & fits:
        candidates = _between_neighbours(sample, candidates)
    if best.encoding.startswith("mac_"):
        # French on Windows is taken for Hungarian on a Mac: look at where its signs stand in words.
        latin = ("cp1252", "mac_roman", best.encoding)
        candidates = sorted(latin, key=lambda codec: -_plausibility(sample.decode(codec, errors="replace")))
    for codec in dict.fromkeys([*candidates, best.encoding]):
        try:
            return data.decode(codec), codec
        except UnicodeDecodeError:
            continue
    return data.decode(best.encoding, errors="replace"), best.encoding


def _telling_lines(data: bytes) -> bytes:
    """The lines that hold other than ASCII: only they tell one encoding from another."""
    telling: list[bytes] = []
    room = SAMPLE_BYTES
    for match in re.finditer(rb"[^\r\n]*[\x80-\xff][^\r\n]*[\r\n]*", data):
        part = match.group()[:room]
        telling.append(part)
        room -= len(part)
        if room <= 0:
            break
    return b"".join(telling)


def _is_western(sample: bytes) -> bool:
    """Whether these bytes are a Western European language in Windows-1252 (or Latin-1, which is part of it).

    Short texts fit Baltic and even Chinese encodings as well, and statistics cannot tell. But then the
    letters would not be those of Western languages, or would stand in runs, or capitals inside words.
    """
    try:
        text = sample.decode("cp1252")
    except UnicodeDecodeError:
        return False
    found = re.findall(r"(?=(.?)([^\x00-\x7f])(.?))", text, re.DOTALL)
    runs = sum(1 for before, _, _ in found if before > "\x7f" and before not in _WESTERN_SIGNS)
    fits = sum(1 for before, each, after in found if _fits_western(before, each, after))
    return fits == len(found) and runs <= len(found) // 4


def _fits_western(before: str, each: str, after: str) -> bool:
    if each in _WESTERN_LETTERS:
        return not (each.isupper() and before.islower())
    return each in _WESTERN_SIGNS and (each == "\u2019" or not (before.isalpha() and after.isalpha()))


def _plausibility(text: str) -> int:
    """How well the characters beyond ASCII stand where they are: letters in words, signs between them."""
    score = 0
    for match in re.finditer(r"([a-z]?)([^\x00-\x7f])([a-z]?)", text):
        before, found, after = match.groups()
        if found in "\u2018\u2019\u201c\u201d\u2013\u2014\u2026\u00ab\u00bb\u00a0" or found.islower():
            score += 1
        elif before or (after and not found.isupper()):
            score -= 1
    return score


def _between_neighbours(sample: bytes, candidates: list[str]) -> list[str]:
    """Order encodings that differ in six letters: Icelandic ones in Windows-1252, Turkish in 1254, others in 1250."""
    icelandic = sum(sample.count(byte) for byte in (0xE1, 0xE6, 0xED, 0xF3, 0xFA))
    if icelandic and sample.count(0xF0) + sample.count(0xFE) > 0:
        return ["cp1252", *candidates]
    if sample.count(0xFD) and sample.count(0xF0) + sample.count(0xFE) and not icelandic:
        return ["cp1254", *candidates]
    return [name for name in candidates if name != "cp1252"] + ["cp1252"]
