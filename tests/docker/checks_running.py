"""What the running containers do: serve a real client, and come back by themselves."""

from __future__ import annotations

import sys
import time

from tests.docker import client
from tests.docker.shell import run
from tests.docker.stack import COLLECTION, FACT, QUESTION, Stack

TOOLS = [
    "cache_stats",
    "clear_cache",
    "list_collections",
    "list_documents",
    "query_docs",
    "reindex_docs",
    "remove_document",
    "usage_stats",
]
KILL_SERVER = """
import os, signal
mine = [int(name) for name in os.listdir('/proc') if name.isdigit()]
for process in mine:
    with open(f'/proc/{process}/stat') as stat:
        parent = int(stat.read().rpartition(')')[2].split()[1])
    if parent == 1:
        os.kill(process, signal.SIGKILL)
"""
KILL_DATABASE = 'kill -9 "$(head -n 1 "$PGDATA/postmaster.pid")"'
START_LIMIT_SECONDS = 10.0
"""A start takes one or two seconds; the limit leaves room for a machine that does other things too."""


def ask(stack: Stack, question: str = QUESTION, port: int | None = None) -> client.Answer:
    """`query_docs` through the server on `port`, the stack's own where none is given."""
    url = stack.url if port is None else f"http://127.0.0.1:{port}/mcp"
    return client.call(url, stack.token, "query_docs", query=question, top_k=3)


def check_answer(answer: client.Answer) -> None:
    """The planted fact comes first, with its source."""
    first = answer.data["passages"][0]
    assert first["source"] == "ferry.md", first
    assert FACT in first["content"], first
    assert FACT in answer.text


def make_up_becomes_healthy(stack: Stack) -> str:
    """`make up` from a clean clone builds, starts, waits until both are healthy, says where and what next."""
    started = time.monotonic()
    said = stack.make("up")
    took = time.monotonic() - started
    assert stack.inspect("db", "{{.State.Health.Status}}") == "healthy"
    assert stack.inspect("server", "{{.State.Health.Status}}") == "healthy"
    assert f"Serving http://127.0.0.1:{stack.port}/mcp" in said, said[-1500:]
    assert "make reindex" in said
    for secret in (stack.token, stack.env_value("POSTGRES_PASSWORD")):
        assert secret not in said
    assert client.get(stack.port, "/healthz")[0] == 200
    client.wait_until_ready(stack.port)
    return f"{took:.0f} s, the build included"


def a_client_indexes_and_asks(stack: Stack) -> str:
    """401 without the token; with it eight tools, a reindex with progress, and the right passage."""
    assert client.get(stack.port, "/mcp", {"Accept": "*/*"})[0] == 401
    assert client.tool_names(stack.url, stack.token) == TOOLS
    report = client.call(stack.url, stack.token, "reindex_docs")
    assert report.progress, "no progress was reported"
    check_answer(ask(stack))
    return f"{len(report.progress)} reports of progress"


def the_host_fills_the_same_database(stack: Stack) -> str:
    """`ingest.py` on this machine, with the address that make up wrote, finds the same documents unchanged."""
    said = run(
        [sys.executable, stack.folder / "src" / "ingest.py", "--json"],
        cwd=stack.folder,
        env={"RAG_EMBED_PROVIDER": "local", "RAG_COLLECTION": COLLECTION, "RAG_ENV_FILE": ""},
    )
    assert f"127.0.0.1:{stack.db_port}" in said, said
    assert '"new": 0' in said and '"changed": 0' in said and '"removed": 0' in said, said
    return "nothing new, nothing removed"


def the_make_targets_reach_the_server(stack: Stack) -> str:
    """reindex, reindex-rebuild, clear-cache and restart, each on the running containers."""
    assert "0 new, 0 changed, 0 removed" in stack.make("reindex")
    assert " 0 unchanged" in stack.make("reindex-rebuild")
    ask(stack)
    stack.make("clear-cache")
    assert ask(stack).data.get("cached") is not True
    stack.make("restart")
    check_answer(ask(stack))
    assert "server" in stack.compose("logs", "--tail", "5", "server")
    return "reindex reindex-rebuild clear-cache restart"


def a_second_server_shares_the_database(stack: Stack) -> str:
    """Two servers on one database: what one indexes, the other answers, its cache notwithstanding."""
    port = stack.second_server()
    client.wait_until_ready(port)
    question = "Who repairs the organ of the lighthouse?"
    assert ask(stack, question, port).data["passages"][0]["source"] != "organ.md"
    ask(stack, question, port)
    (stack.folder / "docs" / "organ.md").write_text(
        "# Lighthouse\n\nThe organ of the lighthouse is repaired by Ida.\n"
    )
    client.call(stack.url, stack.token, "reindex_docs")
    assert ask(stack, question, port).data["passages"][0]["source"] == "organ.md"
    stack.remove_second_server()
    return "the other's cached answer was renewed"


def redeploy_keeps_the_index(stack: Stack) -> str:
    """`make redeploy` after an edit of the source: another server container, the same database and index."""
    before = stack.container("server"), stack.container("db"), stack.inspect("server", "{{.Image}}")
    with (stack.folder / "src" / "doc_rag" / "__init__.py").open("a") as source:
        source.write("\n# edited\n")
    started = time.monotonic()
    stack.make("redeploy")
    took = time.monotonic() - started
    assert stack.container("db") == before[1], "the database was replaced"
    assert stack.container("server") != before[0], "the server was not replaced"
    assert stack.inspect("server", "{{.Image}}") != before[2], "the image is the old one"
    check_answer(ask(stack))
    return f"{took:.0f} s"


def a_killed_server_comes_back(stack: Stack) -> str:
    """SIGKILL of the server's main process, from inside: compose starts it again, and it answers."""
    restarts = int(stack.inspect("server", "{{.RestartCount}}"))
    stack.execute("server", "python", "-c", KILL_SERVER, want=None)
    took = stack.wait_healthy("server", restarts=restarts + 1)
    check_answer(ask(stack))
    return f"healthy again after {took:.1f} s"


def a_killed_database_comes_back(stack: Stack) -> str:
    """SIGKILL of the postmaster, from inside: it recovers, and the server goes on without a restart."""
    restarts = int(stack.inspect("db", "{{.RestartCount}}"))
    servers = stack.inspect("server", "{{.RestartCount}} {{.State.StartedAt}}")
    stack.execute("db", "sh", "-c", KILL_DATABASE, user="postgres", want=None)
    took = stack.wait_healthy("db", restarts=restarts + 1)
    client.wait_until_ready(stack.port)
    check_answer(ask(stack))
    assert stack.inspect("server", "{{.RestartCount}} {{.State.StartedAt}}") == servers, (
        "the server was restarted"
    )
    return f"healthy again after {took:.1f} s"


def the_server_starts_fast_and_stops_cleanly(stack: Stack) -> str:
    """SIGTERM ends it by itself, and a start until /healthz takes a second or two."""
    container = stack.container("server")
    started = time.monotonic()
    run(["docker", "stop", container])
    stopped = time.monotonic() - started
    status = stack.inspect("server", "{{.State.ExitCode}}")
    assert status == "0", f"exit status {status}"
    started = time.monotonic()
    run(["docker", "start", container])
    while client.get(stack.port, "/healthz", limit_seconds=1)[0] != 200:
        assert time.monotonic() - started < START_LIMIT_SECONDS, "no /healthz in time"
        time.sleep(0.02)
    up = time.monotonic() - started
    stack.wait_healthy("server", restarts=int(stack.inspect("server", "{{.RestartCount}}")))
    return f"stopped in {stopped:.1f} s, /healthz {up:.1f} s after docker start"


BACKUP = "from doc_rag.ops import backup; raise SystemExit(backup.main())"
BACKUP_BY_CONTAINER = f"from doc_rag.ops import backup; backup._major = lambda program: None; {BACKUP}"


def a_backup_survives_a_reset(stack: Stack) -> str:
    """Backup, `make db-reset`, `make db`, restore: the index answers again, nothing embedded anew.

    Written by the programs on this machine and restored by those in the container, where none fit here.
    """

    def backup(code: str, *arguments: str, want: int = 0) -> str:
        command = [sys.executable, "-c", code, *arguments]
        environment = stack.environment | {"RAG_ENV_FILE": str(stack.folder / ".env")}
        return run(command, env=environment, cwd=stack.folder, want=want)

    backup(BACKUP, "dump", "index.dump")
    backup(BACKUP_BY_CONTAINER, "dump", "by-container.dump")
    said = stack.make("db-reset", want=2)
    assert "Nothing was removed" in said, said
    stack.make("db-reset", "YES=1")
    assert not stack.container("db")
    stack.make("db")
    backup(BACKUP_BY_CONTAINER, "restore", "index.dump")
    said = backup(BACKUP, "restore", "by-container.dump", want=1)
    assert "is not empty" in said, said
    stack.make("up")
    check_answer(ask(stack))
    assert "0 new, 0 changed, 0 removed" in stack.make("reindex")
    sizes = [(stack.folder / name).stat().st_size / 1e3 for name in ("index.dump", "by-container.dump")]
    return f"{sizes[0]:.0f} and {sizes[1]:.0f} kB"


def down_keeps_the_index(stack: Stack) -> str:
    """`make down` removes the containers; the next `make up` finds the index in its volume."""
    stack.make("down")
    assert not stack.container("db") and not stack.container("server")
    stack.make("up")
    check_answer(ask(stack))
    return "asked again after down and up"
