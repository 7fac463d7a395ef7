"""What could not be looked at is never taken for gone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from doc_rag.sources import is_below
from tests.support.documents import write

# --- what cannot be looked at ------------------------------------------------------------------------------


def run_as_nobody(folder: Path, program: str) -> dict[str, object]:
    """Run a program that prints JSON as a user without rights: as root, permissions do not bite."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        result = subprocess.run(
            [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True
        )
    else:
        drop = "import os\nos.setgroups([])\nos.setgid(65534)\nos.setuid(65534)\n"
        # Everything is imported before the rights are gone: the checkout may be readable by root only.
        head = "import heapq, json, sys, unicodedata\nfrom pathlib import Path\nimport doc_rag.sources\n"
        result = subprocess.run(
            [sys.executable, "-c", head + drop + program, str(folder)],
            capture_output=True,
            text=True,
            check=True,
        )
    answer: dict[str, object] = json.loads(result.stdout)
    return answer


WALK_PROGRAM = """
import json, sys
from pathlib import Path
from doc_rag.errors import DocRagError, ExtractionError
from doc_rag.records import Source
from doc_rag.sources import read_source, walk
try:
    found = walk(Path(sys.argv[1]), (".md",), max_file_bytes=10**7)
except DocRagError as error:
    print(json.dumps({"error": str(error)}))
else:
    try:
        read_source(Source(Path(sys.argv[1]) / "shut.md", "shut.md", b"shut.md", 1, 1), 10**7)
        read = "read"
    except ExtractionError as error:
        read = f"{type(error).__name__}: {error}"
    print(json.dumps({
        "names": [s.name for s in found.sources], "unreadable": found.unreadable,
        "skips": {s.source: s.reason for s in found.skips}, "read": read,
    }))
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, unlike pytest's own temporary folders."""
    folder = Path(tempfile.mkdtemp(dir="/tmp" if os.path.isdir("/tmp") else None))
    folder.chmod(0o755)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(folder)


def test_unreadable_files_and_folders_are_told_apart_from_missing_ones(open_folder: Path) -> None:
    write(open_folder / "ok.md")
    write(open_folder / "shut.md").chmod(0)
    write(open_folder / "closed" / "a.md")
    (open_folder / "closed").chmod(0)
    found = run_as_nobody(open_folder, WALK_PROGRAM)
    assert found["names"] == ["ok.md"]
    assert found["unreadable"] == ["closed", "shut.md"]
    reason = "could not be read: Permission denied; what is indexed of it stays"
    assert found["skips"] == {"closed": reason, "shut.md": reason}
    assert found["read"] == "SourceUnreadable: could not be read: Permission denied"


def test_an_unreadable_root_is_an_error_not_an_empty_folder(open_folder: Path) -> None:
    write(open_folder / "docs" / "a.md")
    (open_folder / "docs").chmod(0)
    error = run_as_nobody(open_folder / "docs", WALK_PROGRAM)["error"]
    assert isinstance(error, str) and "cannot be read: Permission denied" in error


def test_what_is_below_an_unreadable_folder_is_known() -> None:
    unreadable = ("closed", "a/shut.md")
    assert is_below("closed/deep/a.md", unreadable)
    assert is_below("a/shut.md", unreadable)
    assert not is_below("closed-not/a.md", unreadable)
    assert not is_below("a", unreadable)
