"""Run initdb and pg_ctl: with a clean environment, detached from our terminal, as the right user.

The server is given one open file, its lock: the kernel keeps that locked while any process of the
server lives, which tells a running server from a left `postmaster.pid` without a process id. It
inherits nothing else of ours, no stdout, no other lock and no environment (keys live there).
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from doc_rag.errors import DatabaseUnavailable
from doc_rag.store.embedded_account import Account, switching_to
from doc_rag.store.embedded_processes import postgres_processes
from doc_rag.store.embedded_socket import SOCKET_NAME

log = logging.getLogger(__name__)

LOG_NAME = "server.log"
START_SECONDS = 120
"""How long pg_ctl waits: the recovery of a large database takes its time."""
_MAX_LOG_BYTES = 4_000_000
_KEPT_ENVIRONMENT = ("PATH", "TZ", "LD_LIBRARY_PATH")
# What an ALTER SYSTEM must not change. The socket folder is the cluster's own, which is where
# the server works: a relative path has no limit of a hundred bytes. pg_ctl hands this to a shell.
_OPTIONS = "-c listen_addresses='' -c unix_socket_directories=. -c unix_socket_permissions=0700 -c port=5432"
_REASON = re.compile(r"(?:FATAL|PANIC|error|fatal):\s+(.*)")


@dataclass(frozen=True, slots=True)
class Launcher:
    """How to run the Postgres programs. `account` None is ourselves; `lock_fd` is the server's lock."""

    binaries: Path
    account: Account | None
    lock_fd: int

    def initdb(self, folder: Path, options: list[str], seconds: float) -> None:
        """Make a cluster in an empty folder of the account's.

        Raises:
            DatabaseUnavailable: with the reason that initdb gave.
        """
        code, output = self._run("initdb", options, folder, seconds)
        if code:
            raise _failed("cannot make its data folder", _reason(output), folder.parent)

    def start(self, cluster: Path) -> None:
        """Start the server and wait until it takes connections.

        Raises:
            DatabaseUnavailable: with the reason from the server's log.
        """
        log_file = cluster / LOG_NAME
        _rotate(log_file)
        before = log_file.lstat().st_size if log_file.exists() else 0
        words = ["start", "--wait", f"--timeout={START_SECONDS}", "--silent", f"--log={LOG_NAME}"]
        code, output = self._run("pg_ctl", [*words, "--options", _OPTIONS], cluster, START_SECONDS + 10)
        if code:
            raise _failed("did not start", _reason(_read_from(log_file, before)) or _reason(output), cluster)

    def stop(self, cluster: Path) -> None:
        """Ask the server to stop after a last checkpoint, disconnecting whoever is left; does not wait.

        Its lock tells when it is gone. pg_ctl signals the process id in postmaster.pid: call this
        only when the server has answered.
        """
        words = ["stop", "--mode=fast", "--no-wait", "--silent"]
        code, output = self._run("pg_ctl", words, cluster, START_SECONDS)
        if code:
            log.warning("pg_ctl stop in %s: %s", cluster, _reason(output) or f"exit {code}")

    def _run(self, program: str, words: list[str], cluster: Path, seconds: float) -> tuple[int, str]:
        """Run a program in `cluster`; its exit code and what it wrote.

        The cluster goes by PGDATA and the working folder, never on the command line: pg_ctl would put
        it into a shell command, which quotes and dollars in its path would break.
        """
        environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
        # A file, no pipe: a program that outlives its parent would keep a pipe open and us waiting.
        command = [str(self.binaries / program), *words]
        with tempfile.TemporaryFile() as output, switching_to(self.account, command[0]):
            try:
                done = subprocess.run(
                    command,
                    user=self.account.uid if self.account else None,
                    group=self.account.gid if self.account else None,
                    extra_groups=[] if self.account else None,
                    env=environment | {"PGDATA": str(cluster), "LC_ALL": "C"},
                    cwd=cluster,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=(self.lock_fd,),
                    start_new_session=True,  # Ctrl-C in our terminal is not meant for the server
                    timeout=seconds,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return 1, f"error: {program} did not finish in {seconds:g} s"
            except OSError as error:
                if error.filename != command[0]:
                    raise
                raise DatabaseUnavailable(
                    f"the embedded Postgres cannot run on this machine ({error.filename}: "
                    f"{error.strerror}); set RAG_DATABASE_URL to a Postgres 15+ with pgvector."
                ) from error
            output.seek(0)
            return done.returncode, output.read().decode(errors="replace")


def clear_stale_files(cluster: Path) -> None:
    """Remove what a killed postmaster left: its id may by now be that of a stranger, whom Postgres
    would take for itself and refuse to start.

    Call while holding the server's lock: no server of ours lives then. One that was started by
    hand, without our lock, is found by its working folder.

    Raises:
        DatabaseUnavailable: such a server uses the cluster.
    """
    pid_file = cluster / "postmaster.pid"
    if pid_file.exists():
        processes = postgres_processes(cluster)
        if processes is None:
            return  # no way to tell here: Postgres decides
        if processes:
            raise DatabaseUnavailable(
                f"a Postgres that doc-rag did not start (process {processes[0]}) uses {cluster}; stop it, or "
                f"set RAG_DATABASE_URL to its address."
            )
        log.info("removing the postmaster.pid of a server that was killed in %s", cluster)
        pid_file.unlink()
    for name in (f"{SOCKET_NAME}.lock", SOCKET_NAME):
        (cluster / name).unlink(missing_ok=True)


def _failed(what: str, reason: str, folder: Path) -> DatabaseUnavailable:
    """One sentence from what a program said, with what to do."""
    if "No space left on device" in reason or "Disk quota exceeded" in reason:
        remedy = "the disk is full: free some space, or set RAG_DATA_DIR to another disk"
    elif "Read-only file system" in reason:
        remedy = "set RAG_DATA_DIR to a folder that can be written"
    elif "effective user ID" in reason:
        remedy = "add this user to /etc/passwd, or set RAG_DATABASE_URL"
    else:
        remedy = f"see {LOG_NAME} there, or set RAG_DATA_DIR to another folder"
    return DatabaseUnavailable(
        f"the embedded Postgres in {folder} {what} ({reason or 'without a word: killed?'}); {remedy}."
    )


def _reason(output: str) -> str:
    """The last thing that went wrong in a program's output or the server's log; empty if none is named."""
    found = _REASON.findall(output)
    return str(found[-1]).strip().rstrip(".") if found else ""


def _read_from(path: Path, offset: int) -> str:
    """The end of a log file; a link in its place (root reads a service user's folder) is not followed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(fd, "rb") as file:
        file.seek(offset)
        return file.read(100_000).decode(errors="replace")


def _rotate(log_file: Path) -> None:
    """Keep the log and its predecessor to a few megabytes."""
    if log_file.exists() and log_file.lstat().st_size > _MAX_LOG_BYTES:
        log_file.replace(log_file.with_name(f"{LOG_NAME}.1"))
