"""Runs the commands that the documents show, as a user would: as processes, in a clean environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from doc_rag.settings import VARIABLES

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "docs"
SECONDS = 150


def environment(**values: str) -> dict[str, str]:
    """The environment of a user who has set `values` and nothing else of ours."""
    names = {variable.name for variable in VARIABLES}
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    return inherited | {"RAG_ENV_FILE": os.devnull} | values


def sample_environment(database_url: str) -> dict[str, str]:
    """The sample as collection `sample`, in the given database, by the local model."""
    return environment(
        RAG_DATABASE_URL=database_url,
        RAG_DOCS_DIR=str(SAMPLE),
        RAG_COLLECTION="sample",
        RAG_EMBED_PROVIDER="local",
    )


def run(
    command: Sequence[str], env: Mapping[str, str], *, cwd: Path = ROOT, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. `python` and `doc-rag` are those of this virtual environment."""
    programs = {"python": sys.executable, "doc-rag": str(Path(sys.executable).with_name("doc-rag"))}
    return subprocess.run(
        [programs.get(command[0], command[0]), *command[1:]],
        env=dict(env),
        cwd=cwd,
        input=stdin if stdin is not None else "",
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
