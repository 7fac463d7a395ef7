"""CSV, JSON and YAML: data that people keep beside their documents, as text that can be searched."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator

from doc_rag.errors import ExtractionError
from doc_rag.extract.decode import clean, decode
from doc_rag.records import Extracted, Section

MAX_TEXT_CHARS = 200_000_000
"""Longest text made of a table: naming the columns in every row multiplies a narrow one."""

_DELIMITERS = "\t;|,"
"""Of two that fit equally well the first is taken: commas are in numbers and in prose, too."""
_LONG_LINE_CHARS = 2_000


def extract_csv(name: str, data: bytes) -> Extracted:
    """A row becomes a line that names its columns, `name: Ann; age: 36`, so that it can be found and read alone.

    It stands on the line its record ends on in the file. A table whose first row is no header keeps its values alone.
    """
    decoded = decode(data)
    csv.field_size_limit(max(len(decoded.text), 1))
    delimiter = "\t" if name.lower().endswith(".tsv") else _delimiter(decoded.text)
    text = clean("".join(_lines(decoded.text, delimiter)))
    return _plain(text, decoded.warning)


def extract_json(name: str, data: bytes) -> Extracted:
    """JSON as it is written; written anew where its letters are escaped (\\u00e9) or it is one long line."""
    decoded = decode(data)
    text, warning = decoded.text, decoded.warning
    if re.search(r"\\u[0-9a-fA-F]{4}", text) or max(map(len, text.split("\n"))) > _LONG_LINE_CHARS:
        try:
            written = json.dumps(json.loads(text), ensure_ascii=False, indent=1)
            # Control characters stay escaped, so `clean` does not see them.
            text = clean(re.sub(r"(?<!\\)((?:\\\\)*)\\u00[01][0-9a-f]", r"\1", written))
        except (ValueError, RecursionError):
            warning = warning or "is not valid JSON; it is indexed as plain text"
    return _plain(text, warning)


def extract_yaml(name: str, data: bytes) -> Extracted:
    """YAML as it is written, with its comments."""
    decoded = decode(data)
    return _plain(decoded.text, decoded.warning)


def _plain(text: str, warning: str | None) -> Extracted:
    return Extracted(
        text=text, sections=(Section(0, len(text)),), format="text", warnings=(warning,) if warning else ()
    )


def _delimiter(text: str) -> str:
    """The sign that is in most of the first lines equally often."""
    lines = [line for line in text[:65_536].split("\n")[:20] if line.strip()]

    def agreement(delimiter: str) -> tuple[int, int]:
        counts = [line.count(delimiter) for line in lines]
        common = max(set(counts), key=lambda count: (count > 0, counts.count(count)), default=0)
        return (counts.count(common) if common else 0, common)

    return max(_DELIMITERS, key=agreement)


def _lines(text: str, delimiter: str) -> Iterator[str]:
    """The lines of the text, as many as the file has, so that line numbers are the file's."""
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    header: list[str] = []
    written = chars = 0
    try:
        for number, row in enumerate(reader):
            cells = [" ".join(cell.split()) for cell in row]
            if number == 0 and _is_header(cells):
                header = cells
                line = " | ".join(cells)
            elif header:
                named = zip([*header, *[""] * (len(cells) - len(header))], cells, strict=False)
                line = "; ".join(f"{column}: {cell}" if column else cell for column, cell in named if cell)
            else:
                line = "; ".join(cell for cell in cells if cell)
            # A record may span lines of the file: empty ones stand for those before its last.
            yield "\n" * (reader.line_num - written - 1) + line + "\n"
            written = reader.line_num
            chars += len(line)
            if chars > MAX_TEXT_CHARS:
                raise ExtractionError(f"becomes more than {MAX_TEXT_CHARS:,} characters of text; split it")
    except csv.Error as error:
        raise ExtractionError(f"is not readable as a table: {error}") from error


def _is_header(cells: list[str]) -> bool:
    """Whether a first row names columns: several different texts, no numbers."""
    filled = [cell for cell in cells if cell]
    return (
        len(filled) > 1
        and len(set(filled)) == len(filled)
        and not any(re.fullmatch(r"[-+.\d\s]+", c) for c in filled)
    )
