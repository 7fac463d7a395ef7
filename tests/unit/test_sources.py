"""The walk takes every document of a folder once, whatever its name, and a file is read whole or not at all."""

from __future__ import annotations

import json
import os
import unicodedata
from datetime import date
from pathlib import Path

import pytest

from doc_rag.errors import DocRagError, ExtractionError
from doc_rag.records import Source
from doc_rag.sources import SourceUnreadable, date_in_name, read_source
from tests.support.documents import write
from tests.support.walks import BIG, look, names, reasons

# --- what is found ----------------------------------------------------------------------------------


def test_documents_are_found_at_any_depth_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.md", "a/deep/er/x.TXT", "a.md", "image.png"):
        write(tmp_path / name)
    found = look(tmp_path)
    assert names(found) == ["a.md", "a/deep/er/x.TXT", "a/z.md", "b.txt"]
    assert found.unreadable == ()
    source = found.sources[0]
    status = source.path.stat()
    assert (source.size_bytes, source.mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert source.raw_path == b"a.md"


def test_a_single_file_is_walked_under_its_own_name(tmp_path: Path) -> None:
    path = write(tmp_path / "folder" / "only.md")
    write(tmp_path / "folder" / "other.md")
    assert names(look(path)) == ["only.md"]


def test_a_single_file_may_be_hidden_or_a_link_because_the_user_named_it(tmp_path: Path) -> None:
    write(tmp_path / ".hidden.md")
    (tmp_path / "link.md").symlink_to(".hidden.md")
    assert names(look(tmp_path / ".hidden.md")) == [".hidden.md"]
    assert names(look(tmp_path / "link.md")) == ["link.md"]
    assert read_source(look(tmp_path / "link.md").sources[0], BIG)[0] == b"some words\n"


def test_a_root_that_is_a_link_is_the_folder_it_leads_to(tmp_path: Path) -> None:
    write(tmp_path / "real" / "a.md")
    (tmp_path / "docs").symlink_to("real")
    assert names(look(tmp_path / "docs")) == ["a.md"]


def test_a_missing_root_is_an_error_that_names_it_and_the_setting(tmp_path: Path) -> None:
    with pytest.raises(DocRagError, match=r"nowhere does not exist; set RAG_DOCS_DIR"):
        look(tmp_path / "nowhere")


def test_a_root_that_is_no_folder_and_no_document_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.md")
    with pytest.raises(DocRagError, match="neither a folder nor a regular file"):
        look(tmp_path / "fifo.md")
    with pytest.raises(
        DocRagError, match=r"an ending that is not indexed \(\.md \.txt are\); see RAG_EXTENSIONS"
    ):
        look(write(tmp_path / "a.doc"))


def test_a_root_that_is_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(DocRagError, match="cannot be read"):
        look(tmp_path / "a")


# --- names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["a b.md", "line\nbreak.md", 'it\'s "quoted".md', "back\\slash.md", "日本語 🚀.md"]
)
def test_any_name_in_utf8_is_a_source(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    found = look(tmp_path)
    assert names(found) == [name]
    assert read_source(found.sources[0], BIG)[0] == b"some words\n"


def write_raw(folder: Path, raw: bytes) -> None:
    """A file of exactly these bytes, or a skip where the file system refuses or changes them (macOS)."""
    try:
        with open(os.path.join(os.fsencode(folder), raw), "wb") as file:
            file.write(b"words")
    except OSError as error:
        pytest.skip(f"this file system refuses the name: {error}")
    if raw not in os.listdir(os.fsencode(folder)):
        pytest.skip("this file system changes the names it is given")


def test_a_name_that_is_not_utf8_is_named_with_escapes(tmp_path: Path) -> None:
    write_raw(tmp_path, b"caf\xe9.md")
    (tmp_path / "sub").mkdir()
    folder = os.path.join(os.fsencode(tmp_path), b"d\xff")
    os.mkdir(folder)
    with open(os.path.join(folder, b"x.md"), "wb") as file:
        file.write(b"words")
    found = look(tmp_path)
    assert names(found) == []
    reason = "its name is not valid UTF-8; rename it"
    assert reasons(found) == {"caf\\xe9.md": reason, "d\\xff": reason}
    json.dumps([skip.source for skip in found.skips]).encode()


def test_a_name_is_nfc_whatever_the_file_system_says(tmp_path: Path) -> None:
    raw = unicodedata.normalize("NFD", "café.md").encode()
    write_raw(tmp_path, raw)
    (source,) = look(tmp_path).sources
    assert source.name == unicodedata.normalize("NFC", "café.md")
    assert source.raw_path == raw
    assert read_source(source, BIG)[0] == b"words"


def test_of_two_names_equal_after_nfc_the_one_in_nfc_is_taken(tmp_path: Path) -> None:
    composed, decomposed = "café.md".encode(), unicodedata.normalize("NFD", "café.md").encode()
    write_raw(tmp_path, decomposed)
    write_raw(tmp_path, composed)
    found = look(tmp_path)
    assert [source.raw_path for source in found.sources] == [composed]
    (skip,) = found.skips
    assert skip.source == "cafe\\u0301.md"
    assert "differs from 'caf\\xe9.md' only in Unicode form; rename it" in skip.reason


def test_names_that_differ_in_case_are_two_documents(tmp_path: Path) -> None:
    write(tmp_path / "a.md")
    write(tmp_path / "A.md")
    if len(list(tmp_path.iterdir())) < 2:
        pytest.skip("this file system does not tell upper from lower case")
    assert names(look(tmp_path)) == ["A.md", "a.md"]


def test_a_path_over_1024_bytes_is_left_out_with_that_reason(tmp_path: Path) -> None:
    part = "é" * 100
    inside = tmp_path.joinpath(*[part] * 4)
    write(inside / "ok.md")
    write(inside / part / "ünder.md")
    too_long = tmp_path.joinpath(*[part] * 5, "x" * 30 + ".md")
    write(too_long)
    found = look(tmp_path)
    assert sorted(len(name.encode()) for name in names(found)) == [809, 1014]
    (skip,) = found.skips
    assert skip.reason == "its path is 1,038 bytes long; at most 1,024 are indexed"
    assert len(skip.source.encode()) <= 1024


# --- reading -------------------------------------------------------------------------------------------


def source_at(path: Path) -> Source:
    status = path.stat()
    return Source(path, path.name, os.fsencode(path.name), status.st_size, status.st_mtime_ns)


def test_reading_gives_the_bytes_and_the_time_stamp_of_exactly_those_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.md")
    source = source_at(path)
    write(path, "newer words, more of them\n")
    data, mtime_ns, size = read_source(source, BIG)
    assert data == b"newer words, more of them\n"
    assert (mtime_ns, size) == (path.stat().st_mtime_ns, len(data))


def test_a_file_that_vanished_or_became_something_else_is_said_to_have(tmp_path: Path) -> None:
    path = write(tmp_path / "a.md")
    source = source_at(path)
    path.unlink()
    with pytest.raises(ExtractionError, match="vanished"):
        read_source(source, BIG)
    path.symlink_to("/etc/passwd")
    with pytest.raises(ExtractionError, match="has become a symbolic link"):
        read_source(source, BIG)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ExtractionError, match="no longer a regular file"):
        read_source(source, BIG)


def test_a_file_that_grew_over_the_limit_since_the_walk_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.md", "x" * 1000)
    with pytest.raises(ExtractionError, match="RAG_MAX_FILE_MB"):
        read_source(source_at(path), 999)


class Writer:
    """Changes a file each time a part of it is read, for the first `times` reads."""

    def __init__(self, path: Path, times: int) -> None:
        self.path, self.left, self.read = path, times, os.read

    def __call__(self, descriptor: int, count: int) -> bytes:
        part = self.read(descriptor, count)
        if part and self.left:
            self.left -= 1
            with open(self.path, "ab") as file:
                file.write(b" more")
        return part


def test_a_file_changed_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.md", "start")
    monkeypatch.setattr(os, "read", Writer(path, times=1))
    assert read_source(source_at(path), BIG)[0] == b"start more"


def test_a_file_that_keeps_changing_is_left_for_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.md", "start")
    monkeypatch.setattr(os, "read", Writer(path, times=100))
    with pytest.raises(SourceUnreadable, match="kept changing"):
        read_source(source_at(path), BIG)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("log-2026-01-31.md", date(2026, 1, 31)),
        ("2025-02-03/notes-2026-01-31 final.txt", date(2026, 1, 31)),
        ("from 2025-01-01 to 2025-02-01.md", date(2025, 2, 1)),
        ("bad-2026-02-30.md", None),
        ("2025-01-01/plain.md", None),
        ("12026-01-311.md", None),
        ("no date.md", None),
    ],
)
def test_the_date_in_a_name_is_the_last_valid_one(name: str, expected: date | None) -> None:
    assert date_in_name(name) == expected
