"""Kernel-held file locks (`flock`): the one thing about a process that `kill -9` cannot leave behind.

A lock belongs to an open file, not to a process id, so it ends with its last holder and cannot be
mistaken for another process that was given the same id. Used by `embedded` alone. The files are
never deleted: a lock on a deleted file excludes nobody.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl

POLL_SECONDS = 0.02

_open_fds: set[int] = set()


def open_lock_file(path: Path) -> int:
    """Open (and make) a lock file; the descriptor is not inherited by child processes.

    Run by root inside a user's folder the file is given to that user, who could not open it otherwise.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if os.geteuid() == 0:
        folder = path.parent.stat()
        os.fchown(fd, folder.st_uid, folder.st_gid)
    _open_fds.add(fd)
    return fd


def close_lock_file(fd: int) -> None:
    """Close our copy. A lock that was handed to a child process stays with it."""
    _open_fds.discard(fd)
    os.close(fd)


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Take the lock at once, or say that somebody else holds it.

    Raises:
        OSError: the file system has no locks (ENOLCK, EOPNOTSUPP).
    """
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def lock_within(fd: int, seconds: float, *, shared: bool = False) -> bool:
    """Take the lock, waiting up to `seconds` for it; whether it was had."""
    deadline = time.monotonic() + seconds
    while not try_lock(fd, shared=shared):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def unlock(fd: int) -> None:
    """Give the lock up, whoever else has a copy of `fd`, and close the file."""
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        close_lock_file(fd)


@contextmanager
def held_lock(path: Path, seconds: float) -> Iterator[bool]:
    """Hold an exclusive lock for a block; yields False where it was not had within `seconds`."""
    fd = open_lock_file(path)
    try:
        yield lock_within(fd, seconds)
    finally:
        unlock(fd)


def _close_in_child() -> None:
    """A child made by `fork` got copies of our open files: dropped, or our locks would outlive us."""
    for fd in _open_fds:
        os.close(fd)
    _open_fds.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
