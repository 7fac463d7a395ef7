"""One PDF to text, with pypdf. Runs in the worker process only: a hostile file may loop, crash or eat memory."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from doc_rag.errors import ExtractionError
from doc_rag.extract.decode import clean_line
from doc_rag.extract.pdf_lines import Line, unreadable_share
from doc_rag.extract.pdf_text import build_text
from doc_rag.records import Extracted, Section

if TYPE_CHECKING:
    from pypdf import PageObject, PdfReader

MAX_TEXT_CHARS = 50_000_000
"""More text than this is no document but a bomb: a thousand-page book has three million."""

_UNREADABLE_SHARE = 0.3
_NO_TEXT = "has no text in it: it looks scanned and needs OCR (ocrmypdf makes a copy with text)"
_FILE_ENDING = re.compile(
    r"\.(?:docx?|pdf|tex|dvi|indd|qxd|pptx?|xlsx?|rtf|odt|odp|fm|e?ps|html?|txt|md|pages|wpd|cdr|ai)$",
    re.IGNORECASE,
)
_NO_TITLE = re.compile(
    r"(?:untitled|microsoft|document|slide|presentation|powerpoint|layout|about:|https?:|file:|[a-z]:\\|/)",
    re.IGNORECASE,
)


def extract_pdf(name: str, data: bytes) -> Extracted:
    """Read one PDF. `name` is not used: every extractor is called alike.

    Raises:
        ExtractionError: damaged, needs a password, or has no text.
    """
    from pypdf.errors import DependencyError, PyPdfError

    if not data:
        raise ExtractionError("is empty (0 bytes)")
    try:
        reader = _open(data)
        pages, bare, failed = _read_pages(reader)
        title = _metadata_title(reader)
    except DependencyError as error:
        raise ExtractionError(f"cannot be decrypted here: {error}") from error
    except PyPdfError as error:
        raise ExtractionError(f"is damaged, or no PDF at all: {clean_line(str(error), 120)}") from error
    if failed and not any(pages):
        raise ExtractionError(f"is damaged: none of its pages could be read ({failed[0][1]})")
    if not any(line.text.strip() for page in pages for line in page):
        raise ExtractionError(_NO_TEXT if pages else "has no pages")
    built = build_text(pages)
    if not built.text.strip():
        raise ExtractionError(_NO_TEXT)
    warnings: list[str] = []
    if failed:
        warnings.append(f"could not read {page_list([number for number, _ in failed])}: {failed[0][1]}")
    if bare:
        warnings.append(f"found no text on {page_list(bare)}: scanned, perhaps; OCR would make it searchable")
    if unreadable_share(built.text) > _UNREADABLE_SHARE:
        warnings.append(
            "its text looks unreadable (its fonts do not say which letters they draw); OCR would help"
        )
    return Extracted(
        text=built.text,
        sections=tuple(Section(start, end, path) for start, end, path in built.sections),
        format="text",
        title=title or built.title,
        page_starts=built.page_starts,
        warnings=tuple(warnings),
        partial=bool(bare or failed),
    )


def page_list(numbers: list[int]) -> str:
    """Page numbers as a person writes them: "pages 2-5, 9 and 11"."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[:20]]
    if len(ranges) > 20:
        words.append(f"{sum(last - first + 1 for first, last in ranges[20:]):,} more")
    listed = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"page {listed}" if len(numbers) == 1 else f"pages {listed}"


def looks_like_title(title: str) -> bool:
    """Whether a metadata title was written by a person, not left by a program."""
    if (
        len(title) < 3
        or sum(map(str.isalpha, title)) < 3
        or _NO_TITLE.match(title)
        or _FILE_ENDING.search(title)
    ):
        return False
    # One "word" with digits, underscores or inner hyphens is a file's name.
    return " " in title or title.isalpha()


def _open(data: bytes) -> PdfReader:
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(data))
    # Many files are encrypted only against changes: the empty password opens them, as it does in any viewer.
    if reader.is_encrypted and not reader.decrypt(""):
        raise ExtractionError("needs a password; save a copy without one")
    return reader


def _read_pages(reader: PdfReader) -> tuple[list[list[Line]], list[int], list[tuple[int, str]]]:
    """Lines of every page, the numbers of pages with images but no text, and the pages that failed and why."""
    pages: list[list[Line]] = []
    bare: list[int] = []
    failed: list[tuple[int, str]] = []
    chars = 0
    for number in range(1, len(reader.pages) + 1):
        lines: list[Line] = []
        try:
            page = reader.pages[number - 1]
            lines = _read_lines(page)
            if not any(line.text.strip() for line in lines) and _shows_something(page):
                bare.append(number)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - pypdf raises anything on a damaged page; the others are fine.
            failed.append((number, _said(error)))
        pages.append(lines)
        chars += sum(len(line.text) for line in lines)
        if chars > MAX_TEXT_CHARS:
            raise ExtractionError(f"holds more than {MAX_TEXT_CHARS:,} characters of text; split it")
    return pages, bare, failed


def _said(error: Exception) -> str:
    # pypdf's assertions speak to its developers.
    says_something = str(error) and not isinstance(error, AssertionError)
    return clean_line(str(error), 120) if says_something else f"unexpected structure, {type(error).__name__}"


def _read_lines(page: PageObject) -> list[Line]:
    """The lines of a page in the order they were set, each with the place of its first character."""
    lines: list[Line] = []
    runs: list[tuple[str, float, float, float]] = []

    def end_line() -> None:
        said = [run for run in runs if run[0].strip()]
        if said:
            # A bullet or a raised number is set smaller than its line: the longest run's size is the line's.
            longest = max(said, key=lambda run: len(run[0]))
            lines.append(Line("".join(run[0] for run in runs), said[0][1], said[0][2], longest[3]))
        runs.clear()

    def take(part: str, cm: list[float], tm: list[float], _font: object, size: float) -> None:
        for number, run in enumerate(part.split("\n")):
            if number:
                end_line()
            if run:
                runs.append((run, *_place(cm, tm, size)))

    page.extract_text(visitor_text=take)
    end_line()
    return lines


def _place(cm: list[float], tm: list[float], size: float) -> tuple[float, float, float]:
    """x, y and font size in points of text drawn under a text matrix and a transformation matrix."""
    a, b, c, d, e, f = cm
    x, y = tm[4] * a + tm[5] * c + e, tm[4] * b + tm[5] * d + f
    up = (tm[2] * a + tm[3] * c, tm[2] * b + tm[3] * d)
    return x, y, abs(size) * float((up[0] ** 2 + up[1] ** 2) ** 0.5)


def _shows_something(page: PageObject) -> bool:
    """Whether a page without text holds an image or a drawing, so that it is not simply blank."""
    resources = page.get("/Resources")
    objects = resources.get_object().get("/XObject") if resources else None
    if objects and len(objects.get_object()):
        return True
    contents = page.get_contents()
    return contents is not None and len(contents.get_data()) > 500


def _metadata_title(reader: PdfReader) -> str | None:
    try:
        title = clean_line(str((reader.metadata and reader.metadata.title) or ""))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - a damaged information dictionary costs the title, not the text.
        return None
    return title if looks_like_title(title) else None
