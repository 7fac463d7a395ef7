"""`make demo` as a newcomer runs it: it finds the right places, and leaves nothing behind."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from doc_rag.demo import QUESTIONS
from doc_rag.embed.weights import SHIPPED_PACKAGE
from tests.smoke.commands import ROOT, SAMPLE, SECONDS, environment, run
from tests.support.postgres import reachable_folder


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    """Where the demo puts its own folder; open to the user that Postgres runs as."""
    folder = reachable_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def demo(temporary: Path) -> subprocess.CompletedProcess[str]:
    done = run(["python", "-m", "doc_rag.demo"], environment(TMPDIR=str(temporary)))
    assert done.returncode == 0, done.stderr
    return done


def answer_to(question: str, output: str) -> str:
    """What is printed for a question, up to the next one, without line breaks."""
    flat = " ".join(output.split())
    return flat.split(f"Question: {question}", 1)[1].split("Question: ", 1)[0]


def test_the_first_answer_is_the_right_file_and_lines(demo: subprocess.CompletedProcess[str]) -> None:
    answer = answer_to(QUESTIONS[0], demo.stdout)
    first = re.match(r" \[1\] docs/equipment/dome-error-codes\.md > .*? > (.*?), lines (\d+)-(\d+) ", answer)
    assert first, answer
    heading, start, end = first[1], int(first[2]), int(first[3])
    lines = (SAMPLE / "equipment" / "dome-error-codes.md").read_text(encoding="utf-8").splitlines()
    assert heading == "E-14: motor torque"
    assert lines[start - 1] == f"## {heading}"
    assert not any(line.startswith("## ") for line in lines[start:end])
    assert "wooden scraper" in answer


def test_the_second_answer_is_the_right_page(demo: subprocess.CompletedProcess[str]) -> None:
    answer = answer_to(QUESTIONS[1], demo.stdout)
    assert re.match(r" \[1\] docs/equipment/mirror-care-manual\.pdf > .*?, page 3 ", answer), answer
    assert "eighteen months" in answer and "distilled water" in answer


def test_the_output_fits_a_terminal_and_says_what_to_do_next(
    demo: subprocess.CompletedProcess[str], temporary: Path
) -> None:
    ours = (
        demo.stdout.replace(str(ROOT), "...").replace(sys.executable, "...").replace(str(temporary), "/tmp")
    )
    assert [line for line in ours.splitlines() if len(line) > 80] == []
    for word in ("RAG_DOCS_DIR", "make ingest", "make gen-mcp-json", "claude mcp add"):
        assert word in demo.stdout


def test_nothing_but_the_demo_is_on_the_screen(demo: subprocess.CompletedProcess[str]) -> None:
    assert demo.stderr == ""


@pytest.mark.usefixtures("demo")
def test_the_demo_leaves_no_folder_behind(temporary: Path) -> None:
    assert list(temporary.iterdir()) == []


def test_a_failing_step_ends_with_one_sentence_and_status_1(temporary: Path, tmp_path: Path) -> None:
    # A package of that name without the weights stands before the real one.
    (tmp_path / SHIPPED_PACKAGE).mkdir()
    (tmp_path / SHIPPED_PACKAGE / "__init__.py").touch()
    env = environment(TMPDIR=str(temporary), PYTHONPATH=str(tmp_path))
    done = run(["python", "-m", "doc_rag.demo"], env)
    assert done.returncode == 1
    assert done.stderr.startswith("demo: doc-rag ingest ended with status 1. doc-rag: The weights of ")
    assert len(done.stderr.splitlines()) == 1
    assert list(temporary.iterdir()) == []


def test_a_demo_that_is_stopped_leaves_no_folder_behind(temporary: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "doc_rag.demo"],
        env=environment(TMPDIR=str(temporary)),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + signal.SIGTERM
    assert list(temporary.iterdir()) == []
