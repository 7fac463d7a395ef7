"""Token counts by a safe estimate, and cutting text without a tokenizer. Pure, no download.

No vendor's tokenizer is asked: Voyage's would be downloaded, and each model has another. An estimate that
is too low costs a refused call (the batch is halved then), one that is too high a smaller batch.
"""

from __future__ import annotations

import re

_PIECES = re.compile(
    r"(?P<word>[A-Za-z]+)|(?P<symbol>[\x21-\x7e])|(?P<space>\s+)"
    r"|(?P<two>[\x80-\u07ff]+)|(?P<three>[\u0800-\uffff]+)|(?P<four>[^\x00-\uffff]+)|(?P<control>.)",
    re.DOTALL,
)


def estimate_tokens(text: str) -> int:
    """Tokens of `text`, rather too many than too few.

    A word counts one token for each four letters begun, every digit and symbol one, white space one for
    two characters beyond the first; beyond ASCII three tokens for four characters of two UTF-8
    bytes (Latin, Greek, Cyrillic, Hebrew, Arabic), three for two of three bytes (Chinese, Japanese,
    Korean, Indic) and four for one of four (emoji). Code, where tokenizers differ most, so comes out at
    about one token for two characters.
    """
    quarters = 0
    for piece in _PIECES.finditer(text):
        kind, length = piece.lastgroup, piece.end() - piece.start()
        if kind == "word":
            quarters += 4 * ((length + 3) // 4)
        elif kind == "space":
            quarters += 2 * (length - 1) + (2 if "\n" in piece.group() else 0)
        elif kind == "two":
            quarters += 3 * length
        elif kind == "three":
            quarters += 6 * length
        elif kind == "four":
            quarters += 16 * length
        else:
            quarters += 4
    return (quarters + 3) // 4


def split_evenly(text: str, parts: int) -> list[str]:
    """Cut `text` into about `parts` pieces of like length, at white space where there is some nearby.

    The pieces in order make the text again; none is empty.
    """
    size = max(1, -(-len(text) // parts))
    pieces, start = [], 0
    while start < len(text):
        end = min(len(text), start + size)
        if end < len(text):
            gap = max(text.rfind(mark, start + size // 2, end) for mark in (" ", "\n", "\t"))
            end = gap + 1 if gap > 0 else end
        pieces.append(text[start:end])
        start = end
    return pieces


def cut_to_tokens(text: str, tokens: int) -> str:
    """The longest beginning of `text` that the estimate puts at `tokens` or fewer."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if estimate_tokens(text[:middle]) <= tokens else (low, middle - 1)
    return text[:low]
