"""How a client reaches the embedded server: the URL, whether anything answers, and our database.

The server's only socket lies in its own cluster folder, which Postgres keeps at mode 0700: nobody but
its owner (and root) can get there, no cleaner of temporary folders removes it, and every process
finds it. A socket's path has a limit of about a hundred bytes, so a cluster with a longer path (or one
that libpq would misread) is reached through a symbolic link in a short folder that only this
user can enter. The server knows nothing of that link; each client makes it again when it is gone.
"""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import sys
import tempfile
from enum import Enum
from pathlib import Path
from urllib.parse import quote

from doc_rag.errors import DatabaseUnavailable

ROLE = "doc_rag"
DATABASE = "doc_rag"
PORT = 5432
SOCKET_NAME = f".s.PGSQL.{PORT}"
SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107
"""sizeof(sockaddr_un.sun_path) less the closing NUL."""
_LINK = "s"
_PING_SECONDS = 3


class Answer(Enum):
    """What a server says to a knock, as `pg_isready` reports it."""

    READY = "ready"
    BUSY = "starting, recovering or stopping"
    NONE = "no answer"


def database_url(folder: str, database: str = DATABASE) -> str:
    """A URL over the socket in `folder`.

    It names what libpq would otherwise take from the environment (PGPORT, PGHOSTADDR, PGOPTIONS, ...),
    which a user may have set for another Postgres.
    """
    where = f"host={quote(folder)}&port={PORT}&user={ROLE}&hostaddr="
    return f"postgresql:///{database}?{where}&options=&client_encoding=UTF8"


def socket_folder(cluster: Path) -> str:
    """The path under which libpq can reach the socket in `cluster`.

    Raises:
        DatabaseUnavailable: the path is too long and no short folder can be had.
    """
    if _is_direct(str(cluster)):
        return str(cluster)
    problems = []
    for base in dict.fromkeys(("/tmp", tempfile.gettempdir(), "/var/tmp")):
        link = alias_folder(cluster, base) / _LINK
        if not _is_direct(str(link)):
            continue
        try:
            _make_alias(link, cluster)
        except OSError as error:
            problems.append(f"{error.filename or link.parent}: {error.strerror}")
        else:
            return str(link)
    raise DatabaseUnavailable(
        f"the path of RAG_DATA_DIR is too long for a socket and no short folder can stand in for it "
        f"({'; '.join(problems)}); set RAG_DATA_DIR to a path of at most "
        f"{SOCKET_PATH_BYTES - len(SOCKET_NAME) - len('/pg18/')} plain characters."
    )


def remove_alias(folder: str, cluster: Path) -> None:
    """Remove what `socket_folder` made for `cluster`, where it made something."""
    if folder == str(cluster):
        return
    try:
        os.unlink(folder)
        os.rmdir(os.path.dirname(folder))
    except OSError:
        return  # a cleaner was faster, or another process put its link back


def alias_folder(cluster: Path, base: str) -> Path:
    """The short folder of this user for `cluster` below `base`."""
    digest = hashlib.sha256(os.fsencode(cluster)).hexdigest()[:12]
    return Path(base, f"doc-rag-{os.geteuid()}-{digest}")


def ping(folder: str) -> Answer:
    """Knock as `pg_isready` does (libpq's PQping); no login, no process id."""
    from psycopg import pq

    url = database_url(folder, "postgres") + f"&connect_timeout={_PING_SECONDS}"
    answer = pq.PGconn.ping(os.fsencode(url))
    if answer == pq.Ping.OK:
        return Answer.READY
    return Answer.BUSY if answer == pq.Ping.REJECT else Answer.NONE


def make_database(folder: str, seconds: int) -> None:
    """Log in and make our database where it is missing; one commit, so a kill leaves all or nothing.

    Raises:
        psycopg.Error: not let in within `seconds`.
    """
    import psycopg
    from psycopg import sql

    url = database_url(folder, "postgres")
    with psycopg.connect(url, autocommit=True, connect_timeout=seconds) as connection:
        known = "select 1 from pg_database where datname = %s"
        if connection.execute(known, [DATABASE]).fetchone() is None:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(DATABASE)))


def is_listening(folder: str) -> bool:
    """Whether some process holds the socket open, were it too busy to answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PING_SECONDS)
        try:
            probe.connect(os.path.join(folder, SOCKET_NAME))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            return True  # a full queue is a listener, too
    return True


def _is_direct(folder: str) -> bool:
    """Whether libpq takes `folder` as it is: short enough, valid UTF-8, and no comma (its separator)."""
    try:
        length = len(folder.encode()) + 1 + len(SOCKET_NAME)
    except UnicodeEncodeError:
        return False
    return length <= SOCKET_PATH_BYTES and "," not in folder


def _make_alias(link: Path, cluster: Path) -> None:
    """Make `link` point at `cluster`, in a folder of ours that no other user can enter.

    Another user may have made that folder first, to be handed our connections: it is taken only if it
    is a folder (no link), ours, and closed to everybody else.
    """
    folder = link.parent
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise PermissionError(
                0, "exists, but is not a folder that only this user can enter; remove it", str(folder)
            ) from None
    if link.is_symlink() and os.readlink(link) == str(cluster):
        return
    fresh = folder / f"{_LINK}.{os.getpid()}"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(cluster)
    fresh.replace(link)
