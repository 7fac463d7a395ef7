"""What the image and its container are: no secrets, no build tools, no rights, nothing to write on."""

from __future__ import annotations

import gzip
import io
import subprocess
import tarfile
from collections.abc import Iterable
from typing import IO, cast

from tests.docker.shell import run
from tests.docker.stack import Stack

BUILD_TOOLS = ("gcc", "cc", "g++", "make", "git", "curl", "cargo", "rustc")
CHUNK_BYTES = 1 << 20


def _holds(stream: IO[bytes], markers: Iterable[bytes]) -> bytes | None:
    """The first of `markers` that is in the stream, also across its chunks."""
    wanted = list(markers)
    overlap = max(map(len, wanted)) - 1
    tail = b""
    while chunk := stream.read(CHUNK_BYTES):
        window = tail + chunk
        for marker in wanted:
            if marker in window:
                return marker
        tail = window[-overlap:]
    return None


def _plain(blob: IO[bytes]) -> IO[bytes]:
    """A layer without its compression, where it has one."""
    beginning = io.BufferedReader(cast(io.RawIOBase, blob))  # any readable will do
    if beginning.peek(2)[:2] == b"\x1f\x8b":
        return cast(IO[bytes], gzip.GzipFile(fileobj=beginning))
    return beginning


def no_layer_holds_a_secret(stack: Stack) -> str:
    """Every layer and the history of the image, searched for what was planted and for what .env holds."""
    secrets = [stack.planted, stack.token, stack.env_value("POSTGRES_PASSWORD")]
    markers = [secret.encode() for secret in secrets]
    layers = 0
    with subprocess.Popen(["docker", "save", stack.image], stdout=subprocess.PIPE) as saving:
        assert saving.stdout is not None
        with tarfile.open(fileobj=saving.stdout, mode="r|") as image:
            for member in image:
                blob = image.extractfile(member) if member.isfile() else None
                if blob is not None:
                    found = _holds(_plain(blob), markers)
                    assert found is None, f"{found!r} is in {member.name}"
                    layers += member.size > CHUNK_BYTES
    assert saving.returncode == 0
    assert layers >= 2, "docker save gave no layers to look at"
    places = ("/opt/doc-rag", "/root", "/tmp", "/docs")
    wanted = ("-name", ".env*", "-o", "-name", ".git", "-o", "-name", "id_rsa")
    files = run(["docker", "run", "--rm", "--entrypoint", "find", stack.image, *places, *wanted], want=None)
    names = [line for line in files.splitlines() if not line.startswith("find:")]
    assert names == [], names
    return f"{layers} layers over 1 MB searched"


def the_image_has_no_build_tools_and_no_root(stack: Stack) -> str:
    """The final image runs as a user of its own, with none of the tools that build."""
    user = run(["docker", "image", "inspect", "--format", "{{.Config.User}}", stack.image]).strip()
    assert user == "doc-rag", user
    script = "".join(f"command -v {tool} && exit 1; " for tool in BUILD_TOOLS) + "test ! -e /opt/build"
    run(["docker", "run", "--rm", "--entrypoint", "sh", stack.image, "-c", script])
    title = '{{index .Config.Labels "org.opencontainers.image.title"}}'
    assert run(["docker", "image", "inspect", "--format", title, stack.image]).strip() == "doc-rag-mcp"
    size = int(run(["docker", "image", "inspect", "--format", "{{.Size}}", stack.image]))
    return f"user {user}, {size / 1e6:.0f} MB with the base image and the local model"


def the_container_may_do_nothing_it_need_not(stack: Stack) -> str:
    """Read-only root and documents, no capability, no new privileges, limits on memory and processes."""
    status = stack.execute("server", "cat", "/proc/1/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["Uid"].split()[0] == "10001", fields["Uid"]
    assert int(fields["CapEff"], 16) == 0 and int(fields["CapBnd"], 16) == 0, status
    assert fields["NoNewPrivs"] == "1"
    for path in ("/written", "/opt/doc-rag/written", "/docs/written", "/var/lib/written"):
        said = stack.execute("server", "touch", path, want=1)
        assert "Read-only file system" in said, said
    stack.execute("server", "touch", "/tmp/written")
    limits = stack.inspect(
        "server", "{{.HostConfig.Memory}} {{.HostConfig.PidsLimit}} {{.HostConfig.RestartPolicy.Name}}"
    )
    memory, processes, policy = limits.split()
    assert int(memory) > 0 and int(processes) > 0 and policy == "unless-stopped", limits
    shared = int(stack.inspect("db", "{{.HostConfig.ShmSize}}"))
    assert shared == 1 << 30, shared
    return f"uid 10001, no capabilities, {int(memory) >> 20} MB; the database has {shared >> 20} MB to share"
