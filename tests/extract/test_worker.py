"""A file that hangs, crashes or eats memory costs that file alone, and no worker outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from doc_rag.errors import DocRagError, ExtractionError
from doc_rag.extract import Extractor
from tests.support.documents import pdf_of, raw_pdf, slow_pdf

PATIENCE_SECONDS = 60
GOOD = pdf_of("A file like any other.")


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, within bounds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        threading.Event().wait(0.02)


def is_running(pid: int) -> bool:
    """Whether a process runs; one that has ended but that nobody has waited for does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not os.path.isdir("/proc/self")


def test_a_worker_is_started_by_the_first_pdf_and_used_again() -> None:
    with Extractor(pdf_timeout_seconds=60, pdf_memory_mb=1024) as extractor:
        extractor.extract("a.txt", b"words")
        assert extractor.worker_pids == frozenset()
        extractor.extract("a.pdf", GOOD)
        pids = extractor.worker_pids
        assert len(pids) == 1
        with pytest.raises(ExtractionError):
            extractor.extract("b.pdf", b"no pdf")
        extractor.extract("c.pdf", GOOD)
        assert extractor.worker_pids == pids
    assert not any(map(is_running, pids))


def test_a_file_over_its_time_is_given_up_and_the_next_is_read() -> None:
    with Extractor(pdf_timeout_seconds=0.5, pdf_memory_mb=1024) as extractor:
        with pytest.raises(
            ExtractionError, match=r"took longer than 0.5 s to read \(RAG_PDF_TIMEOUT_SECONDS\)"
        ):
            extractor.extract("slow.pdf", slow_pdf())
        assert extractor.worker_pids == frozenset()
    with Extractor(pdf_timeout_seconds=30, pdf_memory_mb=1024) as extractor:
        assert extractor.extract("a.pdf", GOOD).text == "A file like any other."


def test_a_file_over_its_memory_is_given_up_and_the_next_is_read() -> None:
    # Each operator becomes an object: sixty megabytes of stream become gigabytes.
    bomb = raw_pdf(b"q Q " * 15_000_000, compress=True)
    with Extractor(pdf_timeout_seconds=60, pdf_memory_mb=200) as extractor:
        with pytest.raises(
            ExtractionError, match=r"needs more than 200 MB of memory to be read \(RAG_PDF_MEMORY_MB\)"
        ):
            extractor.extract("bomb.pdf", bomb)
        assert extractor.extract("a.pdf", GOOD).text == "A file like any other."


@pytest.mark.parametrize("how", [signal.SIGSEGV, signal.SIGKILL])
def test_a_crash_costs_the_file_and_not_the_next(how: signal.Signals) -> None:
    with Extractor(pdf_timeout_seconds=60, pdf_memory_mb=1024) as extractor, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(extractor.extract, "slow.pdf", slow_pdf())
        until(lambda: len(extractor.worker_pids) == 1)
        (pid,) = extractor.worker_pids
        os.kill(pid, how)
        with pytest.raises(ExtractionError, match="reader process"):
            reading.result(timeout=PATIENCE_SECONDS)
        assert extractor.extract("a.pdf", GOOD).text == "A file like any other."


def test_the_worker_is_given_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.path.isdir("/proc/self"):
        pytest.skip("the environment of another process is read from /proc, which is not here")
    monkeypatch.setenv("VOYAGE_API_KEY", "key-of-the-user")
    monkeypatch.setenv("RAG_DATABASE_URL", "postgresql://user:key-of-the-user@host/db")
    with Extractor(pdf_timeout_seconds=60, pdf_memory_mb=1024) as extractor:
        extractor.extract("a.pdf", GOOD)
        (pid,) = extractor.worker_pids
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"PYTHONPATH=" in environment and b"key-of-the-user" not in environment


def test_two_threads_read_two_files_at_once_and_a_third_waits() -> None:
    with (
        Extractor(pdf_timeout_seconds=60, pdf_memory_mb=1024, workers=2) as extractor,
        ThreadPoolExecutor(6) as pool,
    ):
        texts = list(pool.map(lambda i: extractor.extract(f"{i}.pdf", pdf_of(f"file {i}")).text, range(12)))
        assert texts == [f"file {i}" for i in range(12)]
        assert 1 <= len(extractor.worker_pids) <= 2


def test_a_closed_extractor_starts_nothing_anew() -> None:
    extractor = Extractor(pdf_timeout_seconds=60, pdf_memory_mb=1024)
    extractor.close()
    with pytest.raises(RuntimeError, match="closed"):
        extractor.extract("a.pdf", GOOD)


def test_a_worker_that_cannot_be_started_is_no_fault_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with Extractor(pdf_timeout_seconds=60, pdf_memory_mb=1024) as extractor:
        with pytest.raises(DocRagError, match="no process to read documents in could be started") as caught:
            extractor.extract("a.pdf", GOOD)
        assert not isinstance(caught.value, ExtractionError)


# No `if __name__ == "__main__"`: a start method that ran the script again would never end. The working
# directory holds modules named like ours and like the standard library's.
SCRIPT = """
import sys, threading
from pathlib import Path
from doc_rag.extract import Extractor
extractor = Extractor(pdf_timeout_seconds=60, pdf_memory_mb=1024)
threading.Thread(target=extractor.extract, args=("a.pdf", Path(sys.argv[1]).read_bytes()), daemon=True).start()
while not extractor.worker_pids:
    pass
print(*extractor.worker_pids, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    for name in ("doc_rag.py", "pypdf.py", "json.py", "select.py"):
        (tmp_path / name).write_text("raise SystemExit('the working directory was imported')\n")
    return tmp_path


@pytest.mark.parametrize("end", ["kill", "close", "interrupt"])
def test_no_worker_outlives_its_parent_even_in_the_middle_of_a_file(trap: Path, end: str) -> None:
    (trap / "slow.pdf").write_bytes(slow_pdf())
    parent = subprocess.Popen(
        [sys.executable, "-P", "-c", SCRIPT, "slow.pdf"],
        cwd=trap,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert parent.stdin and parent.stdout and parent.stderr
    with parent:
        worker = int(parent.stdout.readline())
        assert is_running(worker)
        if end == "kill":
            parent.kill()
        elif end == "interrupt":
            parent.send_signal(signal.SIGINT)
        else:
            parent.stdin.close()
        parent.wait(PATIENCE_SECONDS)
        until(lambda: not is_running(worker))


def test_a_worker_says_nothing_on_the_parents_output(trap: Path) -> None:
    program = SCRIPT.split("threading.Thread")[0] + (
        'print(extractor.extract("a.pdf", Path(sys.argv[1]).read_bytes()).text); extractor.close()'
    )
    (trap / "a.pdf").write_bytes(GOOD)
    result = subprocess.run(
        [sys.executable, "-P", "-c", program, "a.pdf"],
        cwd=trap,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert (result.stdout, result.stderr) == ("A file like any other.\n", "")
