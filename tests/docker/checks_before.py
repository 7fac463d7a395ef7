"""What must hold before anything is up: refusals, and a health check that an initialising server fails."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import yaml

from tests.docker.images import named_images
from tests.docker.shell import run
from tests.docker.stack import ROOT, Stack

INITIALISING = "while [ ! -e /tmp/go-on ]; do sleep 0.1; done\n"


def compose_refuses_without_its_secrets(stack: Stack) -> str:
    """POSTGRES_PASSWORD or RAG_AUTH_TOKEN missing: compose names it and starts nothing."""
    for missing, present in (
        ("POSTGRES_PASSWORD", "RAG_AUTH_TOKEN"),
        ("RAG_AUTH_TOKEN", "POSTGRES_PASSWORD"),
    ):
        said = stack.compose("up", "-d", want=None, env={present: "x" * 40})
        assert f"{missing} is not set" in said, said
        assert not stack.container("db"), "a database was started"
        assert not stack.container("server"), "a server was started"
    return "names POSTGRES_PASSWORD, and RAG_AUTH_TOKEN"


def make_up_asks_for_a_token_first(stack: Stack) -> str:
    """`make up` without a token says what to run and starts nothing."""
    said = stack.make("up", want=2)
    assert "make auth-token" in said, said
    assert not stack.container("db"), "a database was started"
    assert not (stack.folder / ".env").exists(), ".env was written"
    return "make auth-token is named, nothing started"


def an_initialising_database_is_not_healthy(stack: Stack) -> str:
    """While the image's temporary server answers on its socket, compose's health check says no."""
    _, image = named_images()
    check = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]["db"]["healthcheck"][
        "test"
    ]
    assert check[0] == "CMD"
    with tempfile.TemporaryDirectory(prefix="doc-rag-init-") as folder:
        Path(folder).chmod(0o755)
        script = Path(folder) / "wait.sh"
        script.write_text(INITIALISING)
        script.chmod(0o644)
        settings = ["-e", "POSTGRES_USER=doc_rag", "-e", "POSTGRES_DB=doc_rag", "-e", "POSTGRES_PASSWORD=x"]
        label = f"com.docker.compose.project={stack.project}"
        mount = f"{folder}:/docker-entrypoint-initdb.d:ro"
        container = run(["docker", "run", "-d", "--label", label, *settings, "-v", mount, image]).strip()
        try:
            _wait_for(container, ["pg_isready", "-q", "-U", "doc_rag"], 0)
            run(["docker", "exec", container, *check[1:]], want=2)
            run(["docker", "exec", container, "touch", "/tmp/go-on"])
            _wait_for(container, check[1:], 0)
        finally:
            run(["docker", "rm", "--force", "--volumes", container])
    return "pg_isready on the socket says yes, the check no; after it yes"


def _wait_for(container: str, command: list[str], status: int, limit_seconds: float = 60.0) -> None:
    deadline = time.monotonic() + limit_seconds
    while True:
        try:
            run(["docker", "exec", container, *command], want=status)
            return
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def make_auth_token_writes_a_private_env(stack: Stack) -> str:
    """`make auth-token` in a clean clone makes .env from the example, for its owner alone."""
    shutil.rmtree(stack.folder / ".venv", ignore_errors=True)
    said = stack.make("auth-token")
    mode = (stack.folder / ".env").stat().st_mode & 0o777
    assert mode == 0o600, oct(mode)
    assert stack.token not in said
    return "0600, by a Python without any package"
