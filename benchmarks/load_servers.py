"""The processes of a load run: servers as users start them, the provider beside them, and how much memory they hold."""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOKEN = "load-token-0123456789-0123456789-0123456789"
START_SECONDS = 60.0
STOP_SECONDS = 40.0
SAMPLE_SECONDS = 0.25


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def whole_env(variables: Mapping[str, str]) -> dict[str, str]:
    """Nothing of the caller's settings, what a process needs at all, and `variables`."""
    needed = ("PATH", "HOME", "TMPDIR", "LANG")
    kept = {name: os.environ[name] for name in needed if name in os.environ}
    return kept | {"RAG_ENV_FILE": os.devnull, "PYTHONPATH": str(ROOT)} | dict(variables)


@contextmanager
def child(
    command: list[str], variables: Mapping[str, str], log: Path, *, piped: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block; what it says goes to `log`. `piped`: it ends with its stdin."""
    pipe = subprocess.PIPE if piped else subprocess.DEVNULL
    with log.open("ab") as stderr:
        process = subprocess.Popen(
            [sys.executable, *command],
            env=whole_env(variables),
            cwd=log.parent,
            stdin=pipe,
            stdout=pipe,
            stderr=stderr,
        )
    try:
        yield process
    finally:
        if process.stdin is not None:
            process.stdin.close()
        elif process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def provider(folder: Path) -> Iterator[dict[str, str]]:
    """The variables that point doc-rag at a provider of this block's."""
    command = ["-m", "benchmarks.load_provider"]
    with child(command, {}, folder / "provider.log", piped=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())


@contextmanager
def server(variables: Mapping[str, str], log: Path) -> Iterator[tuple[str, int]]:
    """Our server over HTTP, ready: its address and its process id."""
    port = free_port()
    command = [str(ROOT / "src" / "server.py"), "--transport", "http", "--port", str(port)]
    with child(command, {"RAG_AUTH_TOKEN": TOKEN} | dict(variables), log) as process:
        wait_for(f"http://127.0.0.1:{port}/readyz", process, log)
        yield f"http://127.0.0.1:{port}/mcp", process.pid


@contextmanager
def empty_server(folder: Path) -> Iterator[str]:
    """The address of an MCP server without tools."""
    port, log = free_port(), folder / "empty.log"
    with child(["-m", "benchmarks.load_empty", str(port)], {}, log) as process:
        wait_for(f"http://127.0.0.1:{port}/", process, log)
        yield f"http://127.0.0.1:{port}/mcp"


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until `url` answers with anything but an error of the server's."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except urllib.error.HTTPError as error:
            if error.code < 500:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise RuntimeError(f"{url} does not answer:\n{log.read_text(errors='replace')[-2_000:]}")


def rss_bytes(pid: int) -> int:
    """Resident memory of one process."""
    status = Path(f"/proc/{pid}/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    done = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(done.stdout) * 1024


class Memory:
    """Samples the resident memory of processes, summed, until the block ends."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.samples: list[tuple[float, int]] = []
        """(seconds since the start, bytes)."""

    def __enter__(self) -> Memory:
        self._started = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(SAMPLE_SECONDS):
            try:
                size = sum(rss_bytes(pid) for pid in self._pids)
            except (OSError, ValueError, IndexError):
                return  # a process has ended; whoever waits for it says so
            self.samples.append((time.monotonic() - self._started, size))

    def around(self, share: float) -> int:
        """Median of the samples around this share (0 to 1) of the time."""
        width = max(1, len(self.samples) // 12)
        middle = min(max(int(share * len(self.samples)), width), len(self.samples) - width)
        return int(
            statistics.median(size for _, size in self.samples[max(0, middle - width) : middle + width])
        )
