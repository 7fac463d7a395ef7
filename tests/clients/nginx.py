"""nginx with the server block that the README shows, in front of a server of ours.

The machine's nginx is used where there is one; else Debian's package is unpacked into the folder of the
npm packages, which installs nothing and starts no service. TLS ends at nginx, with a certificate that
openssl makes for the test.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.clients.packages import STORE
from tests.mcp.serving import free_port
from tests.test_docs import README, fences

NAME, OTHER_NAME = "docs.example.com", "other.example.com"
PACKAGES = ("nginx", "nginx-core")
"""Debian's binary is in the first, Ubuntu's of 22.04 in the second."""
START_SECONDS = 20.0
SYSTEM_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin"


class NoNginx(Exception):
    """There is no nginx here and none can be unpacked; the message is the reason."""


def binary() -> str:
    """An nginx that runs.

    Raises:
        NoNginx: neither the machine nor `unpack` has one.
    """
    found = shutil.which("nginx", path=SYSTEM_PATH)
    candidates = [found] if found else [str(path) for path in sorted(_unpacked().glob("usr/sbin/nginx"))]
    for candidate in candidates:
        if subprocess.run([candidate, "-v"], capture_output=True, timeout=30, check=False).returncode == 0:
            return candidate
    raise NoNginx("nginx is not installed; make test-clients unpacks it where apt-get has it")


def unpack() -> None:
    """Unpack Debian's nginx, unless one runs here already.

    Raises:
        NoNginx: this is no Debian, or apt-get could not fetch it.
    """
    try:
        binary()
        return
    except NoNginx:
        pass
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise NoNginx("nginx is not installed, and there is no apt-get to fetch it with")
    folder = _unpacked()
    folder.mkdir(parents=True, exist_ok=True)
    if not _fetch(folder):
        if os.geteuid() == 0:
            _succeeds(["apt-get", "update", "-qq"], folder)
        if not _fetch(folder):
            raise NoNginx("nginx is not installed, and apt-get could not fetch it")
    for package in sorted(folder.glob("*.deb")):
        _succeeds(["dpkg-deb", "-x", str(package), str(folder)], folder)
    binary()


def _unpacked() -> Path:
    return STORE.with_name("client-tests-nginx")


def _fetch(folder: Path) -> bool:
    """Whether at least one of the packages could be downloaded."""
    return any([_succeeds(["apt-get", "download", "-qq", name], folder) for name in PACKAGES])


def _succeeds(command: list[str], folder: Path) -> bool:
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=300, check=False).returncode == 0


@dataclass(frozen=True, slots=True)
class Certificate:
    """Self-signed, for both names."""

    path: Path
    key: Path


def make_certificate(folder: Path) -> Certificate:
    """A certificate of one day, made by openssl."""
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    names = f"subjectAltName=DNS:{NAME},DNS:{OTHER_NAME}"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-days", "1", "-subj", f"/CN={NAME}", "-addext", names]
    command += ["-keyout", str(made.key), "-out", str(made.path)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return made


def server_block(port: int, upstream_port: int, certificate: Certificate) -> str:
    """The README's block, with this test's ports and files in place of its own."""
    (block,) = fences(README, "nginx")
    for theirs, ours in (
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("/etc/ssl/docs.example.com.pem", str(certificate.path)),
        ("/etc/ssl/docs.example.com.key", str(certificate.key)),
        ("127.0.0.1:8743", f"127.0.0.1:{upstream_port}"),
    ):
        assert block.count(theirs) == 1, f"the README's nginx block has no {theirs}"
        block = block.replace(theirs, ours)
    return block


@contextmanager
def running(folder: Path, upstream_port: int, certificate: Certificate) -> Iterator[int]:
    """nginx in front of that port, for the block; the port that it listens on. Its defaults are left alone."""
    port = free_port()
    temporary = "\n".join(
        f"    {kind}_temp_path {folder / kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root root;" if os.geteuid() == 0 else ""  # the certificate's folder is the test's alone
    configuration = folder / "nginx.conf"
    configuration.write_text(
        f"{user}\ndaemon off;\npid {folder / 'nginx.pid'};\nworker_processes 1;\nevents {{}}\nhttp {{\n"
        f"    access_log off;\n{temporary}\n{server_block(port, upstream_port, certificate)}\n}}\n"
    )
    log = folder / "nginx.log"
    command = [binary(), "-p", str(folder), "-e", str(log), "-c", str(configuration)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_listening(process, port, log)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def _wait_until_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text() if log.exists() else "nginx ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"nginx does not listen after {START_SECONDS:g} s: {log.read_text()}")
