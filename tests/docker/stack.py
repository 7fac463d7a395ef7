"""A clean copy of the checkout and the containers that `make` starts from it, under a project of their own."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.docker.engine import compose_command
from tests.docker.shell import run

ROOT = Path(__file__).resolve().parents[2]
COLLECTION = "docker test"
BUILD_LIMIT_SECONDS = 900.0
FACT = "The ferry to Hollow Island leaves from pier nine at a quarter to eight."
QUESTION = "From which pier does the ferry to Hollow Island leave?"


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def copy_checkout(target: Path) -> None:
    """What a clone would hold, uncommitted work included, and nothing that git ignores."""
    listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT)
    for name in filter(None, listed.split("\0")):
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)


@dataclass
class Stack:
    """One compose project. `planted` is a secret laid where careless images pick secrets up."""

    folder: Path
    project: str = field(default_factory=lambda: f"docragtest{secrets.token_hex(4)}")
    planted: str = field(default_factory=lambda: f"PLANTED-{secrets.token_hex(12)}")
    port: int = field(default_factory=free_port)
    db_port: int = field(default_factory=free_port)

    @property
    def image(self) -> str:
        return f"{self.project}-server"

    @property
    def environment(self) -> dict[str, str | None]:
        """What the user of this stack has set; `.env` holds the secrets."""
        return {
            "COMPOSE_PROJECT_NAME": self.project,
            "COMPOSE": " ".join(compose_command()),
            "DOC_RAG_IMAGE": self.image,
            "DOC_RAG_DB_PORT": str(self.db_port),
            "EXTRAS": "local",
            "RAG_EMBED_PROVIDER": "local",
            "RAG_COLLECTION": COLLECTION,
            "RAG_PORT": str(self.port),
            "DOCKER_BUILDKIT": os.environ.get("DOCKER_BUILDKIT", "0"),
            # The checks decide what is set: nothing of the caller's settings reaches the stack.
            "RAG_AUTH_TOKEN": None,
            "RAG_DATABASE_URL": None,
            "RAG_DOCS_DIR": None,
            "POSTGRES_PASSWORD": None,
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def token(self) -> str:
        return self.env_value("RAG_AUTH_TOKEN")

    def env_value(self, name: str) -> str:
        """A value of the copy's `.env`."""
        from doc_rag.ops.env_file import parse, read

        return parse(read(self.folder / ".env"))[name]

    def prepare(self) -> None:
        """Copy the checkout, add a document with a known fact, plant secrets."""
        copy_checkout(self.folder)
        (self.folder / "docs").mkdir(exist_ok=True)
        (self.folder / "docs" / "ferry.md").write_text(f"# Timetable\n\n{FACT}\n")
        for name in (
            ".git/config",
            "src/.env",
            ".env.local",
            "id_rsa",
            "docs/private.txt",
            "src/doc_rag/.env.bak",
        ):
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"secret = {self.planted}\n")

    def make(self, *targets: str, want: int | None = 0, limit_seconds: float = BUILD_LIMIT_SECONDS) -> str:
        """`make TARGETS` in the copy; its output."""
        return run(
            ["make", "--no-print-directory", *targets],
            cwd=self.folder,
            env=self.environment,
            want=want,
            limit_seconds=limit_seconds,
        )

    def compose(self, *arguments: str, want: int | None = 0, env: Mapping[str, str] | None = None) -> str:
        """The Compose command in the copy; its output."""
        environment = {**self.environment, **(env or {})}
        return run([*compose_command(), *arguments], cwd=self.folder, env=environment, want=want)

    def container(self, service: str) -> str:
        """Id of a service's container; empty where there is none."""
        return run(
            [
                *("docker", "ps", "--all", "--quiet", "--no-trunc"),
                *("--filter", f"label=com.docker.compose.project={self.project}"),
                *("--filter", f"label=com.docker.compose.service={service}"),
            ]
        ).strip()

    def inspect(self, service: str, template: str) -> str:
        """One value of a service's container."""
        return run(["docker", "inspect", "--format", template, self.container(service)]).strip()

    def execute(self, service: str, *command: str, want: int | None = 0, user: str = "") -> str:
        """A command inside a service's container; its output."""
        as_user = ["--user", user] if user else []
        return run(["docker", "exec", *as_user, self.container(service), *command], want=want)

    def wait_healthy(self, service: str, *, restarts: int, limit_seconds: float = 90.0) -> float:
        """Wait until a service was restarted `restarts` times and is healthy again; the seconds it took."""
        started = time.monotonic()
        state = ""
        while time.monotonic() - started < limit_seconds:
            state = self.inspect(service, "{{.RestartCount}} {{.State.Status}} {{.State.Health.Status}}")
            if state == f"{restarts} running healthy":
                return time.monotonic() - started
            time.sleep(0.2)
        logs = run(["docker", "logs", "--tail", "30", self.container(service)])
        raise AssertionError(
            f"{service} after {limit_seconds:g} s: {state}, wanted {restarts} restarts\n{logs}"
        )

    def second_server(self) -> int:
        """Start another server on the same database and documents, beside compose; its port."""
        port = free_port()
        environment = self.inspect("server", "{{range .Config.Env}}{{println .}}{{end}}").splitlines()
        settings = [f"--env={line}" for line in environment if line.startswith(("RAG_", "PG"))]
        run(
            [
                *("docker", "run", "--detach", "--init", "--read-only", "--tmpfs=/tmp"),
                *(f"--name={self.project}-second", f"--network={self.project}_default"),
                *(f"--label=com.docker.compose.project={self.project}", f"--publish=127.0.0.1:{port}:8743"),
                *(f"--volume={self.folder / 'docs'}:/docs:ro", *settings, self.image),
            ]
        )
        return port

    def remove_second_server(self) -> None:
        """End and remove it."""
        run(["docker", "rm", "--force", f"{self.project}-second"])

    def remove(self) -> None:
        """Every container, volume, network and image of this project, whatever state it is in."""
        label = f"label=com.docker.compose.project={self.project}"
        for kind, listing, removal in (
            ("container", ["ps", "--all"], ["rm", "--force", "--volumes"]),
            ("volume", ["ls"], ["rm", "--force"]),
            ("network", ["ls"], ["rm"]),
        ):
            found = run(["docker", kind, *listing, "--quiet", "--filter", label]).split()
            if found:
                run(["docker", kind, *removal, *found])
        run(["docker", "image", "rm", "--force", self.image], want=None)
