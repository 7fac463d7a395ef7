"""The cluster of the embedded Postgres: its folder, made whole or not at all, and who is let in.

`initdb` works in a folder beside and the result is renamed into place, so a kill at any instant leaves
either no cluster or a complete one. Callers hold the start lock and the server's lock.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from pathlib import Path

from doc_rag.errors import DatabaseUnavailable
from doc_rag.store.embedded_account import Account, admitted_users, user_name
from doc_rag.store.embedded_binaries import MAJOR
from doc_rag.store.embedded_server import Launcher
from doc_rag.store.embedded_socket import ROLE

CLUSTER_NAME = f"pg{MAJOR}"
_FRESH_PREFIX = f"{CLUSTER_NAME}.new-"
_INITDB_SECONDS = 300

# Written into postgresql.conf once, so that an operator may change them.
_SETTINGS = {
    "max_connections": "100",
    "shared_buffers": "128MB",
    "work_mem": "16MB",
    # An HNSW build that fits is many times faster than one that spills (20,000 x 384 need about 40 MB).
    "maintenance_work_mem": "128MB",
    # Parallel index builds share maintenance_work_mem through shared memory. Kept in the server's own
    # mapping (no page of it is used before it is needed), since /dev/shm has 64 MB in a container.
    "min_dynamic_shared_memory": "256MB",
    "random_page_cost": "1.1",
    # A client killed in the middle of an index build must not leave the build running.
    "client_connection_check_interval": "10s",
}

_IDENT_HEADER = "# Written by doc-rag at every start: the users of this machine that may connect.\n"
_HBA = f"""# Written by doc-rag at every start. One role, over the socket in this folder alone; the kernel says
# which user is asking (peer), and pg_ident.conf which users may. There is no password and no network.
local all {ROLE} peer map=doc_rag
"""


def folder_refused(error: OSError, data_dir: Path) -> DatabaseUnavailable:
    """One sentence for what the file system said about the data folder."""
    what = {
        errno.ENOSPC: "is on a full disk; free some space, or set RAG_DATA_DIR to another disk",
        errno.EDQUOT: "is over its disk quota; free some space, or set RAG_DATA_DIR to another disk",
        errno.EROFS: "is on a read-only file system; set RAG_DATA_DIR to a folder that can be written",
        errno.EACCES: "cannot be written by this user; set RAG_DATA_DIR to a folder of your own",
        errno.EPERM: "cannot be written by this user; set RAG_DATA_DIR to a folder of your own",
        errno.EEXIST: "is not a folder; set RAG_DATA_DIR to a folder",
        errno.ENOTDIR: "is not a folder; set RAG_DATA_DIR to a folder",
        errno.ENAMETOOLONG: "is too long a path; set RAG_DATA_DIR to a shorter one",
        errno.ENOLCK: "is on a file system without file locks; set RAG_DATA_DIR to a local folder",
        errno.EOPNOTSUPP: "is on a file system without file locks; set RAG_DATA_DIR to a local folder",
    }.get(error.errno or 0, f"cannot be used ({error}); set RAG_DATA_DIR to another folder")
    return DatabaseUnavailable(f"the embedded Postgres cannot start: {data_dir} {what}.")


def make_data_dir(data_dir: Path) -> None:
    """Make the data folder with its missing parents; folders that exist keep their modes.

    For root they are made open to enter (0755), as the service user must pass; what lies in them is
    closed by itself. For an ordinary user they are made closed (0700).
    """
    missing = []
    folder = data_dir
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    mode = 0o755 if os.geteuid() == 0 else 0o700
    for folder in reversed(missing):
        try:
            folder.mkdir(mode=mode)
        except FileExistsError:
            continue  # another process is starting at the same time
        folder.chmod(mode)  # whatever the umask says
    if not data_dir.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(data_dir))


def cluster_exists(cluster: Path) -> bool:
    """Whether a whole cluster of our version is there.

    Raises:
        DatabaseUnavailable: another version's, or a folder that holds something else.
    """
    try:
        version = (cluster / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        if cluster.is_dir() and any(cluster.iterdir()):
            raise DatabaseUnavailable(
                f"{cluster} holds files but no Postgres cluster; move it away, or set RAG_DATA_DIR to "
                f"another folder."
            ) from None
        return False
    except PermissionError:
        raise DatabaseUnavailable(
            f"{cluster} belongs to {user_name(cluster.stat().st_uid)}, not to {user_name(os.geteuid())}; set "
            f"RAG_DATA_DIR to a folder of your own."
        ) from None
    if version != str(MAJOR):
        raise DatabaseUnavailable(
            f"{cluster} was made by Postgres {version} and the embedded one is {MAJOR}; move it away (an "
            f"index can be built again from the documents), or set RAG_DATA_DIR to another folder."
        )
    return True


def initialise(launcher: Launcher, data_dir: Path, cluster: Path) -> None:
    """Make the cluster in `cluster`, which is absent or an empty folder.

    The builtin C.UTF-8 locale folds case of every script (full text finds `École`) and needs neither
    ICU nor the machine's locales, so a copied cluster never sees another sort order.

    Raises:
        DatabaseUnavailable: initdb failed; the message says why.
        OSError: the data folder cannot be written.
    """
    for leftover in data_dir.glob(f"{_FRESH_PREFIX}*"):
        shutil.rmtree(leftover)
    fresh = Path(tempfile.mkdtemp(prefix=_FRESH_PREFIX, dir=data_dir))
    try:
        if launcher.account:
            os.chown(fresh, launcher.account.uid, launcher.account.gid, follow_symlinks=False)
        launcher.initdb(fresh, _initdb_options(), _INITDB_SECONDS)
        write_access_files(fresh, launcher.account)
        fresh.rename(cluster)
        _flush_folder(data_dir)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def write_access_files(cluster: Path, account: Account | None) -> None:
    """Say who may connect, in pg_hba.conf and pg_ident.conf; written anew where they differ.

    At every start, since a folder may have moved to a user of another name.
    """
    names = (name.replace('"', '""') for name in admitted_users(account))
    ident = _IDENT_HEADER + "".join(f'doc_rag "{name}" {ROLE}\n' for name in names)
    for name, text in (("pg_hba.conf", _HBA), ("pg_ident.conf", ident)):
        path = cluster / name
        if not path.is_symlink() and path.exists() and path.read_text(errors="replace") == text:
            continue
        _replace_file(path, text, account)


def _initdb_options() -> list[str]:
    options = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C", "--encoding=UTF8"]
    options += [f"--username={ROLE}", "--auth-local=peer", "--auth-host=reject", "--no-instructions"]
    if sys.platform == "linux":
        # One flush of the file system: measured 1.0 s for a first start, where a flush of each of the
        # thousand files took 3 to 5 s. Without any, a power cut could leave a broken cluster.
        options.append("--sync-method=syncfs")
    return options + [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]


def _replace_file(path: Path, text: str, account: Account | None) -> None:
    """Write a file by way of a new one: root must not follow a link that the service user laid down."""
    fresh = path.with_name(f"{path.name}.doc-rag")
    fresh.unlink(missing_ok=True)
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, text.encode())
        if account:
            os.fchown(fd, account.uid, account.gid)
        os.fsync(fd)
    finally:
        os.close(fd)
    fresh.replace(path)


def _flush_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
