"""An extractor for the tests of this folder, and what they ask of processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from doc_rag.extract import Extractor


@pytest.fixture(scope="module")
def extractor() -> Iterator[Extractor]:
    with Extractor(pdf_timeout_seconds=60, pdf_memory_mb=1024) as made:
        yield made
