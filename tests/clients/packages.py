"""The npm packages of these tests, installed once for each package-lock.json into a folder under .venv/.

Nothing is written beside package.json, no package's install script runs, and npm's own settings decide
which registry is asked: the lock file names none.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STORE = ROOT / ".venv" / "client-tests"
FILES = ("package.json", "package-lock.json")
OLDEST_NODE = (20, 0, 0)
INSPECTOR_NODE = (22, 19, 0)
INSTALL_SECONDS = 600


class NoNode(Exception):
    """No Node that is new enough, or no packages for it; the message is the reason."""


class InstallFailed(Exception):
    """Node and npm are here, and npm could not install; the message has its last lines."""


@dataclass(frozen=True, slots=True)
class Packages:
    """Installed packages, the Node that runs them, and one that is new enough for the Inspector, if any."""

    folder: Path
    node: str
    inspector_node: str | None

    @property
    def version(self) -> str:
        """Of the Node that runs the clients."""
        return ".".join(map(str, node_version(self.node)))


def folder() -> Path:
    """Where the packages of this package-lock.json belong."""
    digest = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in FILES)).hexdigest()
    return STORE / digest[:16]


def node_version(node: str) -> tuple[int, ...]:
    """What `node --version` says, as numbers; empty where it does not run."""
    try:
        done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=True)
        return tuple(int(part) for part in done.stdout.strip().lstrip("v").split("-")[0].split("."))
    except (OSError, subprocess.SubprocessError, ValueError):
        return ()


def installed() -> Packages:
    """The packages that are installed.

    Raises:
        NoNode: they are not, or there is no Node to run them.
    """
    node = shutil.which("node")
    if node is None:
        raise NoNode("node is not installed")
    if node_version(node) < OLDEST_NODE:
        wanted = ".".join(map(str, OLDEST_NODE[:2]))
        raise NoNode(f"node is older than {wanted}, which the MCP SDK for TypeScript wants")
    place = folder()
    if not place.is_dir():
        raise NoNode("the npm packages are not installed; make test-clients installs them")
    bundled = sorted(place.glob("node_modules/node-*/bin/node"))
    newest = [str(path) for path in (*bundled, Path(node)) if node_version(str(path)) >= INSPECTOR_NODE]
    return Packages(place, node, newest[0] if newest else None)


def needs_install() -> bool:
    """Whether the packages of this package-lock.json are missing.

    Raises:
        NoNode: they are, and node or npm as well.
    """
    if folder().is_dir():
        return False
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        raise NoNode(f"{' and '.join(missing)} not installed")
    return True


def install() -> None:
    """Install the packages. A half-done installation is never taken for a whole one.

    Raises:
        InstallFailed: npm could not, or not in time.
    """
    place = folder()
    STORE.mkdir(parents=True, exist_ok=True)
    for old in STORE.iterdir():
        shutil.rmtree(old)
    making = Path(tempfile.mkdtemp(prefix="making-", dir=STORE))
    for name in FILES:
        shutil.copy(HERE / name, making / name)
    command = [
        "npm",
        "ci",
        "--ignore-scripts",
        "--prefer-offline",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ]
    try:
        done = subprocess.run(
            command, cwd=making, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise InstallFailed(f"npm could not install the packages within {INSTALL_SECONDS} s") from None
    if done.returncode != 0:
        raise InstallFailed(f"npm could not install the packages:\n{done.stderr[-2_000:]}")
    making.rename(place)
