# ruff: noqa: RUF001 - the letters that look alike are the point.
"""Lines of a PDF become paragraphs, headings and pages; what is no text of the document goes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doc_rag.chunk import chunk_document
from doc_rag.extract.decode import clean
from doc_rag.extract.pdf import looks_like_title, page_list
from doc_rag.extract.pdf_lines import Line, clean_characters, drop_running_lines, unreadable_share
from doc_rag.extract.pdf_text import PdfText, build_text
from doc_rag.records import Extracted, Section
from tests.support.chunk_checks import check


def page(*texts: str, x: float = 70, top: float = 700, size: float = 10, leading: float = 12) -> list[Line]:
    """Lines one below the other. "" leaves a gap, two blanks in front set a line in."""
    lines = []
    for number, text in enumerate(texts):
        if text:
            indent = 2 * (len(text) - len(text.lstrip(" ")))
            lines.append(Line(text.strip(" "), x + size * indent / 2, top - leading * number, size))
    return lines


WIDE = "A line that goes on to the margin of its column, as most lines of a paragraph do"


def text_of(*pages: list[Line]) -> str:
    return build_text(pages).text


def test_lines_of_a_paragraph_become_one_and_gaps_part_paragraphs() -> None:
    text = text_of(page(WIDE, WIDE, "and ends here.", "", WIDE, "so does this."))
    assert text == f"{WIDE} {WIDE} and ends here.\n\n{WIDE} so does this."


def test_a_line_set_in_or_after_a_short_one_begins_a_paragraph() -> None:
    assert text_of(page(WIDE, WIDE, "  " + WIDE, WIDE)) == f"{WIDE} {WIDE}\n{WIDE} {WIDE}"
    assert text_of(page(WIDE, "A short end.", WIDE, WIDE)) == f"{WIDE} A short end.\n{WIDE} {WIDE}"


def test_list_items_keep_their_lines() -> None:
    text = text_of(page(WIDE, "\u2022 " + WIDE, "  and more of it", "\u2022 two", "1. three", "(a) four"))
    assert text == f"{WIDE}\n\u2022 {WIDE} and more of it\n\u2022 two\n1. three\n(a) four"


@pytest.mark.parametrize(
    ("end", "start", "joined"),
    [
        ("man-", "agement", "management"),
        ("man\u00ad", "agement", "management"),
        ("self-", "tests", "self-tests"),
        ("Meyer-", "Landrut", "Meyer-Landrut"),
        ("COVID-", "related", "COVID-related"),
        ("2-", "fold", "2- fold"),
        ("so -", "and", "so - and"),
    ],
)
def test_hyphens_at_line_ends_are_joined_where_the_word_goes_on(end: str, start: str, joined: str) -> None:
    """`self-tests` stands in the middle of a line elsewhere, so its hyphen is its own."""
    elsewhere = "There are self-tests in it, and they are run before each and every release."
    text = text_of(page(elsewhere, f"{WIDE} {end}", f"{start} and the rest"))
    assert f"do {joined} and the rest" in text


def test_a_soft_hyphen_that_joins_nothing_is_gone() -> None:
    assert text_of(page(WIDE, "the end\u00ad", "", "Next\u00ad")) == f"{WIDE} the end\n\nNext"


def test_ideographs_are_joined_without_a_blank() -> None:
    assert (
        text_of(page("羅生門の下で雨やみを" * 5, "待っていた。"))
        == "羅生門の下で雨やみを" * 5 + "待っていた。"
    )
    assert (
        text_of(page("羅生門の下で雨やみを" * 5), page("待っていた。"))
        == "羅生門の下で雨やみを" * 5 + "待っていた。"
    )


def test_a_column_break_inside_a_sentence_is_no_paragraph() -> None:
    left, right = page(WIDE, "pellentesque ante. Phasellus adipis-"), page("cing semper elit.", WIDE, x=320)
    assert "adipiscing semper elit." in text_of(left + right)
    assert "\n\nNew column" in text_of(page(WIDE, WIDE + ".") + page("New column " + WIDE, x=320))


def test_words_beside_each_other_on_one_line_stay_on_it() -> None:
    assert text_of([Line("Name", 70, 700, 10), Line("Amount", 200, 700.5, 10)]) == "Name Amount"


def test_a_paragraph_goes_on_over_a_page_break_and_each_page_keeps_its_start() -> None:
    built = build_text([page(WIDE, "it is inter-"), page("rupted by the page.", "", WIDE), page(WIDE + ".")])
    first = f"{WIDE} it is interrupted by the page."
    assert built.text == f"{first}\n\n{WIDE}\n\n{WIDE}."
    assert [built.text[start:][:6] for start in built.page_starts] == ["A line", "rupted", "A line"]
    # The third page begins anew, so no chunk reaches into it.
    third = built.page_starts[2]
    assert [(start, end) for start, end, _ in built.sections] == [(0, third), (third, len(built.text))]


def test_pages_without_text_have_a_start_too() -> None:
    built = build_text([[], page("one."), [], page("two."), []])
    assert built.page_starts == (0, 0, 4, 6, 10)
    assert (built.text[0:4], built.text[6:]) == ("one.", "two.")


def headed(*parts: tuple[str, float]) -> PdfText:
    lines, y = [], 700.0
    for text, size in parts:
        y -= 2 * size
        lines.append(Line(text, 70, y, size))
    return build_text([lines])


def test_larger_lines_are_headings_and_the_largest_is_the_title() -> None:
    body = [(WIDE, 10.0)] * 5
    built = headed(
        ("The Manual", 20), ("1 Start", 14), *body, ("1.1 Deeper", 12), *body, ("2 End", 14), *body
    )
    assert built.title == "The Manual"
    assert [path for _, _, path in built.sections] == [
        ("The Manual", "1 Start"),
        ("The Manual", "1 Start", "1.1 Deeper"),
        ("The Manual", "2 End"),
    ]


def test_a_heading_of_two_lines_is_one() -> None:
    lines = [
        Line("A heading that is", 70, 700, 16),
        Line("rather long", 70, 682, 16),
        *page(*[WIDE] * 6, top=650),
    ]
    assert [path for _, _, path in build_text([lines]).sections] == [("A heading that is rather long",)]


def test_where_much_is_large_size_is_no_heading() -> None:
    built = headed(*[("Large words here", 20.0), (WIDE, 10.0)] * 6)
    assert built.sections == ((0, len(built.text), ()),)
    assert built.title is None


def test_lines_of_a_table_of_contents_are_no_headings() -> None:
    built = headed(("1 Start . . . . . . . . . . 7", 14), *[(WIDE, 10.0)] * 5)
    assert built.text.startswith("1 Start \u2026 7\n\n")
    assert built.sections[0][2] == ()


# --- what goes --------------------------------------------------------------------------------------


def numbered_page(number: int, header: str, footer: str) -> list[Line]:
    body = [f"Sentence {number}.{i} of this page, which is about something." for i in range(6)]
    return [Line(header, 70, 780, 9), *page(*body), Line(footer, 300, 30, 9)]


@pytest.mark.parametrize("footer", ["{}", "Page {} of 9", "- {} -", "{} | Example Corp"])
def test_running_headers_and_page_numbers_go(footer: str) -> None:
    pages = [numbered_page(n, "Example Corp Handbook", footer.format(n)) for n in range(1, 6)]
    for kept in drop_running_lines(pages):
        assert len(kept) == 6 and all(line.text.startswith("Sentence") for line in kept)


def test_headers_of_left_and_right_pages_and_roman_numbers_go() -> None:
    numerals = ("iv", "v", "vi", "vii", "viii", "ix")
    pages = [numbered_page(n, ("Handbook", "Chapter One")[n % 2], numerals[n]) for n in range(6)]
    assert all(len(kept) == 6 for kept in drop_running_lines(pages))


def test_what_counts_along_with_the_pages_in_large_letters_is_a_heading() -> None:
    pages = [
        [Line(f"Exercise {n}", 70, 780, 14), *page(*[f"Task {n} {i} to do" for i in range(6)])]
        for n in range(9)
    ]
    assert drop_running_lines(pages) == pages


def test_lines_at_the_edge_that_differ_in_their_numbers_stay() -> None:
    pages = [page(*[f"Item {n * 31 + 7 * i} costs {n * i} euros" for i in range(8)]) for n in range(9)]
    assert drop_running_lines(pages) == pages


def test_chapter_headers_that_end_in_the_page_number_go_on_few_pages_too() -> None:
    chapters = ["Beginnings", "Beginnings", "Middle", "Middle", "Endings", "Endings"]
    pages = [numbered_page(n, f"{chapters[n]} {n + 17}", "x" * n) for n in range(6)]
    assert not any(
        "17" in line.text or "20" in line.text for kept in drop_running_lines(pages) for line in kept
    )


def test_a_title_that_later_runs_as_header_stays_where_it_is_large() -> None:
    pages = [numbered_page(n, "The Handbook", "") for n in range(1, 6)]
    pages[0] = [Line("The Handbook", 70, 780, 24), *pages[0][1:]]
    kept = drop_running_lines(pages)
    assert kept[0][0].text == "The Handbook"
    assert all(line.text != "The Handbook" for later in kept[1:] for line in later)


def test_two_pages_or_all_pages_alike_are_left_as_they_are() -> None:
    few = [numbered_page(n, "Header", "") for n in (1, 2)]
    assert drop_running_lines(few) == few
    forms = [page("Name", "Street", "Town", "Country") for _ in range(5)]
    assert drop_running_lines(forms) == forms


def test_characters_are_put_right_where_that_is_safe() -> None:
    assert clean_characters("misﬁts ﬀ ﬂow oﬃce") == "misfits ff flow office"
    assert clean_characters("ＡＢＣ　１２３ ｱｲ") == "ABC 123 アイ"
    assert clean_characters("x² H₂O ½ ™") == "x² H₂O ½ ™"
    assert clean_characters("soft\u00adhyphen end\u00ad") == "softhyphen end\u00ad"
    assert clean_characters("a\0b\ud835 \uf0b7 c") == "ab • c"
    assert clean_characters("Intro ......... 12") == "Intro … 12"


def test_a_blank_after_every_ligature_is_swallowed_but_one_alone_may_be_right() -> None:
    assert "the field and the flow" in text_of(page("the ﬁ eld and the ﬂ ow of oﬃce"))
    assert "a sci-fi film and first" in text_of(page("a sci-ﬁ ﬁlm and ﬁrst"))


def test_unreadable_text_is_known() -> None:
    assert unreadable_share("/G43/G24/G14 /G44/G13") > 0.8
    assert unreadable_share("\ue001\ue002\ufffd") == 1.0
    assert unreadable_share("See /usr/share/doc2 and a/b for more words") < 0.3
    assert unreadable_share("") == 0.0


@pytest.mark.parametrize(
    ("title", "is_one"),
    [
        ("Annual Report 2025", True),
        ("Введение", True),
        ("Microsoft Word - report.doc", False),
        ("Microsoft PowerPoint - Q3", False),
        ("untitled", False),
        ("Untitled Document", False),
        ("report_final_v3", False),
        ("report final.docx", False),
        ("Document1", False),
        ("C:\\docs\\a", False),
        ("/tmp/x", False),
        ("https://example.org", False),
        ("2024-01-01", False),
        ("", False),
        ("ab", False),
    ],
)
def test_a_metadata_title_counts_where_a_person_wrote_it(title: str, is_one: bool) -> None:
    assert looks_like_title(title) is is_one


def test_pages_are_listed_as_ranges() -> None:
    assert page_list([3]) == "page 3"
    assert page_list([1, 2, 3, 5, 8, 9]) == "pages 1-3, 5 and 8-9"
    assert page_list(list(range(1, 100, 2))).endswith("37, 39 and 30 more")


SET_LINES = st.builds(
    Line,
    st.one_of(
        st.sampled_from(
            [
                "man-",
                "agement",
                "\u2022 item",
                "7",
                "end\u00ad",
                "羅生門",
                "e\u0301",
                "\u0301x",
                "A line.",
                WIDE,
            ]
        ),
        st.text(max_size=30),
    ),
    st.floats(0, 600),
    st.floats(0, 800),
    st.sampled_from([8.0, 10.0, 10.0, 10.0, 14.0, 20.0]),
)


@given(st.lists(st.lists(SET_LINES, max_size=8), max_size=8), st.integers(50, 200))
def test_pages_and_places_hold_whatever_is_set_where(pages: list[list[Line]], size: int) -> None:
    built = build_text(pages)
    assert len(built.page_starts) == len(pages)
    assert list(built.page_starts) == sorted(built.page_starts)
    sections = tuple(Section(*section) for section in built.sections)
    assert all(before.end == after.start for before, after in pairwise(sections))
    assert clean(built.text) == built.text
    # Nothing of the text is outside the sections.
    assert not built.text or (sections[0].start, sections[-1].end) == (0, len(built.text))
    extracted = Extracted(built.text, sections, "text", page_starts=built.page_starts)
    check(extracted, chunk_document(extracted, size=size, overlap=size // 8), size)
