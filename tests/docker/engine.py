"""A Docker engine for the tests: the one that runs, else one that this process starts and stops again.

Nothing is installed unless DOC_RAG_TEST_INSTALL=1 says so (as `.ci/run` does): `make test-docker` on
someone's own machine changes nothing there.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docker.shell import run, succeeds

PACKAGES = ("docker.io", "docker-compose", "debootstrap")
# A machine may lack a kernel module: each try gives up one thing more.
DAEMON_FLAGS: tuple[tuple[str, ...], ...] = (
    (),
    ("--storage-driver=vfs",),
    ("--iptables=false", "--ip6tables=false"),
)
START_SECONDS = 45.0


class NoEngine(Exception):
    """There is no Docker engine here and none could be started; the message is the reason."""


def answers() -> bool:
    """Whether a Docker engine answers."""
    return succeeds(["docker", "info"])


def compose_command() -> tuple[str, ...]:
    """The Compose command that works here, v2 before v1 as in the Makefile; empty where there is none."""
    commands = (("docker", "compose"), ("docker-compose",))
    return next((command for command in commands if succeeds([*command, "version"])), ())


def install() -> None:
    """Install engine, Compose and debootstrap by apt-get.

    Raises:
        NoEngine: this is no Debian, not root, or the packages cannot be had.
    """
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NoEngine("installing an engine takes root and apt-get")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        run(["apt-get", "update", "-qq"], env=quiet, limit_seconds=300)
        run(
            ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *PACKAGES],
            env=quiet,
            limit_seconds=900,
        )
    except (OSError, AssertionError) as error:
        raise NoEngine(f"apt-get could not install {', '.join(PACKAGES)}: {error}") from None


def _start(flags: tuple[str, ...], log: Path) -> subprocess.Popen[bytes] | None:
    """A daemon that answers, or None; what it said is in `log`."""
    with log.open("ab") as output:
        daemon = subprocess.Popen(
            ["dockerd", *flags],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while daemon.poll() is None and time.monotonic() < deadline:
        if answers():
            return daemon
        time.sleep(0.5)
    _stop(daemon)
    return None


def _stop(daemon: subprocess.Popen[bytes]) -> None:
    """End the daemon that we started, and its containers with it."""
    if daemon.poll() is None:
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(60)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


@contextmanager
def docker_engine() -> Iterator[str]:
    """An engine for the length of the block; yields what it is, for the report.

    Raises:
        NoEngine: there is none, and none may or can be started.
    """
    may_install = os.environ.get("DOC_RAG_TEST_INSTALL") == "1"
    if may_install and not (shutil.which("docker") and shutil.which("debootstrap") and compose_command()):
        install()
    if shutil.which("docker") is None:
        raise NoEngine("the docker command is not installed")
    if not compose_command():
        raise NoEngine("neither 'docker compose' nor docker-compose is installed")
    if answers():
        yield "the engine that runs here"
        return
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        if may_install and os.geteuid() == 0:
            install()
        else:
            raise NoEngine("no engine answers, and starting one takes root and dockerd")
    with tempfile.TemporaryDirectory(prefix="doc-rag-engine-") as folder:
        log = Path(folder) / "dockerd.log"
        for flags in DAEMON_FLAGS:
            daemon = _start(flags, log)
            if daemon is not None:
                try:
                    yield f"an engine started here ({' '.join(('dockerd', *flags))})"
                finally:
                    _stop(daemon)
                return
        raise NoEngine(f"dockerd does not start:\n{log.read_text(errors='replace')[-2000:]}")
