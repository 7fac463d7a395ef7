"""Which operating-system user runs the embedded Postgres, and who may connect to it.

Postgres refuses to run as root. An ordinary user runs it himself. For root:

1. A cluster that exists is run by its owner, so the choice is made once and stays, whatever accounts
   the machine gets later. Only an owner that we would have chosen is accepted: otherwise whoever can
   write in the data folder could lay down a cluster of his own and be handed root's documents.
2. In a folder that belongs to an ordinary user, that user runs it, so that he can go on without root.
3. Otherwise the account `postgres` (`_postgres` on macOS), made by the system for this very purpose and
   shared with no other service; else a system account `doc-rag` that `useradd` makes; and only without
   `useradd` (a read-only or very small container) `nobody`, whom other services may share.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from doc_rag.errors import DatabaseUnavailable

if sys.platform != "win32":
    import pwd

log = logging.getLogger(__name__)

SERVICE_NAMES = ("postgres", "_postgres", "doc-rag", "nobody")
"""In the order of preference; `doc-rag` is made before `nobody` is taken."""
_OWN_NAME = "doc-rag"
_TOOL_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Account:
    """A user that runs Postgres in root's stead."""

    name: str
    uid: int
    gid: int


def server_account(data_dir: Path, cluster: Path) -> Account | None:
    """The account to run Postgres as; None: ourselves. `data_dir` exists, `cluster` need not.

    Raises:
        DatabaseUnavailable: the cluster belongs to somebody who must not or cannot run it.
    """
    owner = cluster.stat().st_uid if (cluster / "PG_VERSION").exists() else None
    if os.geteuid() != 0:
        if owner not in (None, os.geteuid()):
            raise DatabaseUnavailable(
                f"{cluster} belongs to {user_name(owner or 0)}, not to {user_name(os.geteuid())}; "
                f"set RAG_DATA_DIR to a folder of your own."
            )
        return None
    folder_owner = data_dir.stat().st_uid
    if owner is None:
        return (_account_of(folder_owner) if folder_owner else None) or service_account()
    # A container made anew over an old volume has lost the account that the last one made.
    account = _account_of(owner) or (service_account() and _account_of(owner))
    trusted = {found.uid for found in map(_account_named, SERVICE_NAMES) if found} | {folder_owner}
    if owner == 0 or owner not in trusted or account is None:
        raise DatabaseUnavailable(
            f"{cluster} belongs to {user_name(owner)}, who cannot run Postgres for root; give it to its "
            f"service user (chown -R {service_account().name}), or set RAG_DATA_DIR to another folder."
        )
    return account


def service_account() -> Account:
    """The system account that stands in for root, made where there is none."""
    for name in SERVICE_NAMES:
        account = _account_named(name) or (_make_account() if name == _OWN_NAME else None)
        if account:
            return account
    raise DatabaseUnavailable(
        "Postgres refuses to run as root and this machine has no user postgres, doc-rag or nobody; "
        "make one (useradd --system doc-rag), run as an ordinary user, or set RAG_DATABASE_URL."
    )


def admitted_users(account: Account | None) -> list[str]:
    """Names of the users that may connect: root, and the one who runs the server for himself.

    A service account runs the server for root and is no client of it: other services may share it.
    """
    name = account.name if account else user_name(os.geteuid())
    return sorted({"root"} if name in SERVICE_NAMES and account else {"root", name})


def user_name(uid: int) -> str:
    """The name of a user, or his number where the machine knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user id {uid}"


def can_enter(account: Account, folder: Path) -> bool:
    """Whether the account can reach `folder`: asked of the kernel, since ACLs and mounts decide too."""
    shell = ["/bin/sh", "-c", 'cd -- "$1"', "sh", str(folder)]
    return run_tool(shell, account).returncode == 0


def run_tool(command: list[str], account: Account | None) -> subprocess.CompletedProcess[bytes]:
    """Run a short command as the account, with nothing of our environment but the search path.

    Raises:
        OSError: the program cannot be executed.
        DatabaseUnavailable: this process may not become that user.
    """
    with switching_to(account, command[0]):
        return subprocess.run(
            command,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
            env={"PATH": os.defpath, "LC_ALL": "C"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TOOL_SECONDS,
            check=False,
        )


@contextmanager
def switching_to(account: Account | None, program: str) -> Iterator[None]:
    """Say in a sentence that root may not become another user; a refused `program` is left to the caller."""
    try:
        yield
    except OSError as error:
        # subprocess names the program where executing it failed, and the working folder (which root
        # can enter) where something before that did: the change of user.
        if account is None or error.filename == program:
            raise
        raise DatabaseUnavailable(
            f"Postgres refuses to run as root and this process may not become {account.name} "
            f"({error.strerror}; a container without the SETUID and SETGID capabilities?); run it as an "
            f"ordinary user, or set RAG_DATABASE_URL."
        ) from error


def _account_named(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid) if entry.pw_uid else None


def _account_of(uid: int) -> Account | None:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _make_account() -> Account | None:
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if not useradd:
        return None
    made = run_tool(
        [useradd, "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", _OWN_NAME],
        None,
    )
    if made.returncode:
        log.warning("useradd %s failed: %s", _OWN_NAME, made.stderr.decode(errors="replace").strip())
    return _account_named(_OWN_NAME)
