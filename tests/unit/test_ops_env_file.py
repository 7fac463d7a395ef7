"""`.env` is changed one variable at a time: everything else in it stays byte for byte."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from dotenv import dotenv_values
from hypothesis import given
from hypothesis import strategies as st

from doc_rag.ops import env_file

EXAMPLE = """# head
# RAG_CHUNK_SIZE=800
export VOYAGE_API_KEY='a # b'   # trailing
RAG_COLLECTION=one
RAG_MULTI="first
RAG_COLLECTION=not this one
last"
RAG_COLLECTION=two # in force
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def read_by_dotenv(text: str) -> dict[str, str | None]:
    return dict(dotenv_values(stream=io.StringIO(text), interpolate=False))


def test_the_assignment_in_force_is_replaced_and_every_other_line_kept() -> None:
    changed = env_file.set_value(EXAMPLE, "RAG_COLLECTION", "three words")
    assert changed == EXAMPLE.replace("RAG_COLLECTION=two # in force", "RAG_COLLECTION='three words'")


def test_a_value_over_several_lines_is_replaced_whole() -> None:
    changed = env_file.set_value(EXAMPLE, "RAG_MULTI", "short")
    assert 'last"' not in changed
    assert read_by_dotenv(changed) == {**read_by_dotenv(EXAMPLE), "RAG_MULTI": "short"}


def test_a_commented_out_default_makes_room_for_the_value() -> None:
    assert env_file.set_value(EXAMPLE, "RAG_CHUNK_SIZE", "900").splitlines()[1] == "RAG_CHUNK_SIZE=900"


def test_a_new_variable_is_appended_behind_a_last_line_without_its_end() -> None:
    assert env_file.set_value("A=1", "B", "2") == "A=1\nB=2\n"


def test_windows_line_ends_stay() -> None:
    assert env_file.set_value("A=1\r\nB=2\r\n", "A", "3") == "A=3\r\nB=2\r\n"


def test_reading_agrees_with_the_reader_of_the_settings() -> None:
    assert env_file.parse(EXAMPLE) == read_by_dotenv(EXAMPLE)


@given(st.text(st.characters(codec="utf-8", exclude_characters="'\r\n\0\\"), max_size=40))
def test_whatever_is_written_is_read_back_by_the_settings_reader(value: str) -> None:
    text = env_file.set_value(EXAMPLE, "RAG_AUTH_TOKEN", value)
    assert read_by_dotenv(text)["RAG_AUTH_TOKEN"] == value
    assert env_file.parse(text)["RAG_AUTH_TOKEN"] == value


@pytest.mark.parametrize("value", ["it's", "two\nlines", "back\\slash", "nul\0"])
def test_a_value_that_readers_disagree_about_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        env_file.set_value("", "A", value)


def test_the_file_is_private_whatever_it_was(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("A=1\n")
    path.chmod(0o644)
    env_file.update(path, {"A": "2"})
    assert (path.read_text(), mode(path)) == ("A=2\n", 0o600)
    assert os.listdir(tmp_path) == [".env"]


def test_a_missing_file_is_made_from_the_example(tmp_path: Path) -> None:
    (tmp_path / ".env.example").write_text("# says what\n# A=\n")
    env_file.update(tmp_path / ".env", {"A": "2"})
    assert (tmp_path / ".env").read_text() == "# says what\nA=2\n"
    assert (tmp_path / ".env.example").read_text() == "# says what\n# A=\n"


def test_a_symlink_stays_one_and_its_target_is_changed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("A=1\n")
    (tmp_path / ".env").symlink_to("real")
    env_file.update(tmp_path / ".env", {"A": "2"})
    assert (tmp_path / ".env").is_symlink()
    assert (tmp_path / "real").read_text() == "A=2\n"


def test_a_file_that_cannot_be_replaced_is_left_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ".env"
    path.write_text("A=1\n")

    def refuse(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no"):
        env_file.update(path, {"A": "2"})
    assert path.read_text() == "A=1\n"
    assert os.listdir(tmp_path) == [".env"]


def test_the_command_takes_the_value_from_standard_input(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "doc_rag.ops.env_file", "VOYAGE_API_KEY"]
    environ = {**os.environ, "RAG_ENV_FILE": str(tmp_path / ".env")}
    done = subprocess.run(
        command, input="secret\n", env=environ, capture_output=True, text=True, check=True, timeout=30
    )
    assert (tmp_path / ".env").read_text() == "VOYAGE_API_KEY=secret\n"
    assert "secret" not in done.stdout + done.stderr
    assert env_file.main(["VOYAGE_API_KEY", "secret"]) == 2
