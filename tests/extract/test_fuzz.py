"""A short run of the fuzzer; `benchmarks/fuzz_extract.py` makes the long one."""

from __future__ import annotations

from benchmarks.fuzz_extract import fuzz


def test_mutated_files_are_read_or_refused_and_nothing_else() -> None:
    tally = fuzz(pdf_count=40, text_count=40, seconds=2, seed=20260131)
    assert tally.broken == []
    assert tally.read + tally.refused.total() == 80
    # Neither everything read nor everything refused: the files are damaged, but not beyond reading.
    assert tally.read > 20 and tally.refused.total() > 5
