"""Which Postgres processes work in a folder, and how to end them: for the cases that no lock explains.

Never on the way of an ordinary start or stop. It answers two questions: is the process behind a left
`postmaster.pid` a Postgres that somebody started by hand, and which processes did a killed postmaster
leave behind. The answer comes from the working folder of each process, which a Postgres process has
in its cluster and a stranger that was given the same id has not.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
from pathlib import Path

from doc_rag.store.embedded_locks import lock_within

log = logging.getLogger(__name__)

PROGRAMS = ("postgres", "initdb", "pg_ctl")
_LSOF_SECONDS = 10
_END_SECONDS = 5


def postgres_processes(folder: Path) -> list[int] | None:
    """Ids of Postgres programs that work in `folder` or below; None where the system does not tell.

    `folder` is a real path. Linux tells by /proc, others (macOS) by `lsof`, which they carry.
    """
    if Path("/proc/self/cwd").exists():
        return _by_proc(folder)
    lsof = shutil.which("lsof") or shutil.which("lsof", path="/usr/sbin:/usr/bin")
    return _by_lsof(lsof, folder) if lsof else None


def end_processes(folder: Path, server_lock_fd: int) -> bool:
    """End what a dead postmaster left in `folder`; True once the server's lock is ours.

    SIGQUIT is Postgres's immediate shutdown, which the next start repairs from its log, as it does
    after SIGKILL, which follows where that was not heard.
    """
    for how in (signal.SIGQUIT, signal.SIGKILL):
        found = postgres_processes(folder) or []
        if found:
            log.warning("ending Postgres processes left in %s: %s", folder, found)
        for pid in found:
            try:
                os.kill(pid, how)
            except (ProcessLookupError, PermissionError):
                log.info("process %d has ended or is not ours", pid)
        if lock_within(server_lock_fd, _END_SECONDS):
            return True
    return False


def _is_below(path: str, folder: Path) -> bool:
    return path == str(folder) or path.startswith(f"{folder}{os.sep}")


def _by_proc(folder: Path) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            program = Path("/proc", name, "comm").read_text(errors="replace").strip()
            if program in PROGRAMS and _is_below(os.readlink(f"/proc/{name}/cwd"), folder):
                found.append(int(name))
        except OSError:
            continue  # it ended meanwhile, or belongs to somebody else
    return sorted(found)


def _by_lsof(lsof: str, folder: Path) -> list[int] | None:
    """Read `lsof -F pn`: a line `p<id>` for each process, then `n<path>` for its working folder."""
    names = [word for program in PROGRAMS for word in ("-c", program)]
    try:
        answer = subprocess.run(
            [lsof, "-nPw", "-a", *names, "-d", "cwd", "-F", "pn"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LSOF_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found, pid = [], 0
    for line in os.fsdecode(answer.stdout).splitlines():
        if line.startswith("p"):
            pid = int(line[1:])
        elif line.startswith("n") and _is_below(line[1:], folder):
            found.append(pid)
    return sorted(found)
