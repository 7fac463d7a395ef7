"""What the walk leaves out it names, and it never leaves the folder."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from doc_rag import ignore_rules
from doc_rag.skips import MAX_SKIPS_PER_KIND
from doc_rag.sources import read_source
from tests.support.documents import write
from tests.support.walks import BIG, look, names, reasons

# --- what is left out, and said -----------------------------------------------------------------------


def test_hidden_and_vendor_folders_are_left_out_and_named(tmp_path: Path) -> None:
    for name in (
        ".git/a.md",
        "node_modules/x/a.md",
        "py/pyvenv.cfg",
        "py/lib/a.md",
        ".draft.md",
        ".DS_Store",
        "a.md",
    ):
        write(tmp_path / name)
    found = look(tmp_path)
    assert names(found) == ["a.md"]
    assert reasons(found) == {
        ".git/": "hidden folder",
        "node_modules/": "vendor folder",
        "py/": "vendor folder",
        ".draft.md": "hidden file",
    }


def test_a_folder_called_env_may_hold_documents(tmp_path: Path) -> None:
    write(tmp_path / "env" / "a.md")
    assert names(look(tmp_path)) == ["env/a.md"]


def test_endings_that_are_not_indexed_are_counted_not_listed(tmp_path: Path) -> None:
    for i in range(12):
        write(tmp_path / f"{i}.png")
    write(tmp_path / "README")
    write(tmp_path / "a.an ending that is a sentence")
    assert reasons(look(tmp_path)) == {
        "*.png": "12 files with an ending that is not indexed",
        "*": "2 files with an ending (or none) that is not indexed",
    }


def test_a_file_over_the_size_limit_is_named_with_the_setting(tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_bytes(b"x" * 3_000_000)
    found = look(tmp_path, max_file_bytes=2 * 1_048_576)
    assert names(found) == []
    assert reasons(found) == {"big.txt": "is 2.9 MB large, more than the 2 MB of RAG_MAX_FILE_MB"}


def test_a_long_list_of_one_kind_is_cut_and_counted(tmp_path: Path) -> None:
    write(tmp_path / ".gitignore", "*.md\n")
    for i in range(MAX_SKIPS_PER_KIND + 50):
        write(tmp_path / f"{i:04}.md")
    found = look(tmp_path)
    assert len(found.skips) == MAX_SKIPS_PER_KIND + 1
    assert reasons(found)["*"] == "50 more: ignored by .gitignore"


def test_special_files_are_left_out_without_waiting_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    # The address of a socket is short; a relative one always is.
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock.txt")
        found = look(tmp_path)
    assert names(found) == []
    assert reasons(found) == {
        "pipe.md": "is a FIFO, not a regular file",
        "sock.txt": "is a socket, not a regular file",
    }


# --- ignore files ----------------------------------------------------------------------------------------


def test_ignore_files_hold_where_they_are_and_below(tmp_path: Path) -> None:
    write(tmp_path / ".gitignore", "drafts/\n*.tmp.md\n/top.md\n")
    write(tmp_path / "sub" / ".ragignore", "# only here\nsecret*.md\n!keep.tmp.md\n")
    for name in (
        "drafts/a.md",
        "a.tmp.md",
        "top.md",
        "sub/top.md",
        "sub/secret1.md",
        "sub/keep.tmp.md",
        "secret.md",
    ):
        write(tmp_path / name)
    found = look(tmp_path)
    assert names(found) == ["secret.md", "sub/keep.tmp.md", "sub/top.md"]
    assert reasons(found) == {
        "drafts/": "ignored by .gitignore",
        "a.tmp.md": "ignored by .gitignore",
        "top.md": "ignored by .gitignore",
        "sub/secret1.md": "ignored by sub/.ragignore",
    }


def test_ragignore_overrides_gitignore_beside_it(tmp_path: Path) -> None:
    write(tmp_path / ".gitignore", "*.md\n")
    write(tmp_path / ".ragignore", "!public.md\n")
    write(tmp_path / "public.md")
    write(tmp_path / "private.md")
    assert names(look(tmp_path)) == ["public.md"]


def test_a_pattern_that_cannot_be_used_is_named_and_the_others_hold(tmp_path: Path) -> None:
    # The second is a pattern that a regular expression would take minutes over.
    write(tmp_path / ".gitignore", "\\\n" + "*a" * 30 + "b\nout.md\n")
    write(tmp_path / ("a" * 200 + ".md"))
    write(tmp_path / "out.md")
    found = look(tmp_path)
    assert names(found) == ["a" * 200 + ".md"]
    problems = [skip.reason for skip in found.skips if skip.source == ".gitignore"]
    assert problems == [
        "line 1 is not a pattern that can be used; it is left out",
        "line 2 is not a pattern that can be used; it is left out",
    ]


def test_an_ignore_file_that_is_a_link_or_no_text_file_is_not_read(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", "*.md\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / ".gitignore").symlink_to(outside)
    os.mkfifo(tmp_path / "docs" / ".ragignore")
    write(tmp_path / "docs" / "a.md")
    found = look(tmp_path / "docs")
    assert names(found) == ["a.md"]
    assert {skip.source for skip in found.skips} == {".gitignore", ".ragignore"}
    assert all(skip.reason.startswith("its rules are not applied") for skip in found.skips)


def test_an_ignore_file_that_is_too_large_is_named(tmp_path: Path) -> None:
    write(tmp_path / ".gitignore", "x" * (ignore_rules.MAX_IGNORE_FILE_BYTES + 1))
    write(tmp_path / "a.md")
    found = look(tmp_path)
    assert names(found) == ["a.md"]
    assert "larger than 1,048,576 bytes" in reasons(found)[".gitignore"]


# --- symbolic links ------------------------------------------------------------------------------------


def test_a_file_reached_by_a_link_too_is_taken_once_under_its_own_name(tmp_path: Path) -> None:
    write(tmp_path / "z" / "real.md")
    (tmp_path / "a.md").symlink_to("z/real.md")
    (tmp_path / "y").symlink_to("z")
    found = look(tmp_path)
    assert names(found) == ["z/real.md"]
    assert reasons(found) == {
        "a.md": "a symbolic link to z/real.md, indexed under that name",
        "y": "a symbolic link to z, walked there",
    }


def test_what_only_a_link_leads_to_is_taken_under_the_name_of_the_link(tmp_path: Path) -> None:
    # As a mounted Kubernetes ConfigMap does it: the files are in a hidden folder.
    write(tmp_path / "..2026_01_01" / "guide.md")
    write(tmp_path / ".store" / "deep" / "a.md")
    (tmp_path / "guide.md").symlink_to("..2026_01_01/guide.md")
    (tmp_path / "again.md").symlink_to("guide.md")
    (tmp_path / "docs").symlink_to(".store/deep")
    found = look(tmp_path)
    assert names(found) == ["again.md", "docs/a.md"]
    assert reasons(found)["guide.md"] == "a symbolic link to again.md, indexed under that name"
    assert read_source(found.sources[0], BIG)[0] == b"some words\n"


def test_circles_of_links_end(tmp_path: Path) -> None:
    write(tmp_path / "a" / "x.md")
    (tmp_path / "a" / "up").symlink_to("..")
    (tmp_path / "a" / "self").symlink_to(".")
    (tmp_path / "loop1.md").symlink_to("loop2.md")
    (tmp_path / "loop2.md").symlink_to("loop1.md")
    write(tmp_path / ".hidden" / "y.md")
    (tmp_path / ".hidden" / "back").symlink_to("../.hidden")
    (tmp_path / "shown").symlink_to(".hidden")
    found = look(tmp_path)
    assert names(found) == ["a/x.md", "shown/y.md"]
    assert reasons(found)["loop1.md"] == "a symbolic link that leads in a circle"
    assert reasons(found)["a/up"] == "a symbolic link to the documents folder itself, walked there"
    assert reasons(found)["shown/back"] == "a symbolic link to shown, walked there"


def test_links_out_of_the_root_and_to_nothing_are_named_and_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "outside" / "secret.md")
    docs = tmp_path / "docs"
    write(docs / "a.md")
    (docs / "out").symlink_to(tmp_path / "outside")
    (docs / "out.md").symlink_to("../outside/secret.md")
    (docs / "gone.md").symlink_to("nothing.md")
    # A sibling whose name begins like the root's is not inside it.
    write(tmp_path / "docs-private" / "b.md")
    (docs / "near.md").symlink_to("../docs-private/b.md")
    found = look(docs)
    assert names(found) == ["a.md"]
    out = "a symbolic link that leads out of the documents folder; it is not followed"
    assert reasons(found) == {
        "out": out,
        "out.md": out,
        "near.md": out,
        "gone.md": "a symbolic link to nothing",
    }
