"""Knowledge bases on a test's own database and docs folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from doc_rag.service import KnowledgeBase
from tests.conftest import MakeSettings

MakeKb = Callable[..., KnowledgeBase]


@pytest.fixture
def make_kb(make_settings: MakeSettings) -> Iterator[MakeKb]:
    """A knowledge base from settings by name, closed at the end of the test."""
    with ExitStack() as stack:
        yield lambda **values: stack.enter_context(KnowledgeBase(make_settings(**values)))


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """The docs folder that `make_kb` points at."""
    folder = tmp_path / "docs"
    folder.mkdir(exist_ok=True)
    return folder


def write(folder: Path, **files: str) -> None:
    """Write `name.md` for each keyword."""
    for name, text in files.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
