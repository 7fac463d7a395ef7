"""What backup, restore and the doctor ask of a database: its versions, its address, whether anything is in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import conninfo

from doc_rag.store.schema import GOOD_PGVECTOR, migrations


@dataclass(frozen=True, slots=True)
class Facts:
    """Versions of a database that is open."""

    postgres: str
    postgres_major: int
    pgvector: str
    schema: int
    pgvector_has_defects: bool
    """Below the version that repaired index defects (0.8.4)."""


def facts(connection: psycopg.Connection[Any]) -> Facts:
    """Versions of Postgres, pgvector and our schema."""
    row = connection.execute(
        "select current_setting('server_version'),"
        " (select extversion from pg_extension where extname = 'vector'),"
        " (select max(version) from doc_rag_migrations)"
    ).fetchone()
    if row is None:
        raise AssertionError("a select without from always has a row")
    pgvector = tuple(int(part) for part in re.findall(r"\d+", row[1])[:3])
    return Facts(
        row[0].split()[0], connection.info.server_version // 10_000, row[1], row[2], pgvector < GOOD_PGVECTOR
    )


def client_address(connection: psycopg.Connection[Any]) -> tuple[str, str]:
    """(connection string without password, password) with which another program reaches the same database."""
    kept = connection.info.get_parameters()
    for name in ("application_name", "connect_timeout", "options", "client_encoding"):
        kept.pop(name, None)
    return conninfo.make_conninfo("", **kept), connection.info.password or ""


def our_tables() -> re.Pattern[str]:
    """The names that our migrations give to tables; a generation's partition among them."""
    made = {
        name for _, text in migrations() for name in re.findall(r"^create table (\w+)", text, re.MULTILINE)
    }
    return re.compile(rf"({'|'.join(sorted(made))}|doc_rag_migrations|doc_chunks_g\d+)")


def what_is_there(connection: psycopg.Connection[Any]) -> list[str]:
    """What keeps this database from being one to restore into, as phrases; empty where nothing does.

    Our own tables without a collection are nothing: every database has them after the first start.
    """
    names = connection.execute(
        "select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where c.relkind in ('r', 'p', 'm', 'v', 'f') and n.nspname not in ('pg_catalog', 'information_schema')"
        " and n.nspname !~ '^pg_(toast|temp)'"
        " and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid"
        " and d.deptype = 'e') order by c.relname"
    ).fetchall()
    ours = our_tables()
    found = [f"a table {name}" for (name,) in names if not ours.fullmatch(name)]
    collections = connection.execute("select name from collections order by name").fetchall()
    return [f"the collection {name}" for (name,) in collections] + found


def refresh_statistics(connection: psycopg.Connection[Any]) -> None:
    """`analyze`: a restored database has no statistics, and the planner would guess."""
    connection.execute("analyze")
