"""What `make test-clients` installs from, and what it says where it cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.clients.packages import HERE, ROOT


def test_the_lock_file_pins_every_package_and_names_no_registry() -> None:
    packages = json.loads((HERE / "package-lock.json").read_text())["packages"]
    entries = {name: entry for name, entry in packages.items() if name}
    assert entries
    for name, entry in entries.items():
        assert entry["version"] and entry["integrity"].startswith("sha512-"), name
        assert "resolved" not in entry, name


def test_what_is_asked_for_is_pinned_exactly() -> None:
    package = json.loads((HERE / "package.json").read_text())
    wanted = package["dependencies"] | package["optionalDependencies"] | package["overrides"]
    assert all(version.replace(".", "").isdigit() for version in wanted.values()), wanted


def test_without_node_it_says_so_and_ends_well(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.clients.run"],
        env={**os.environ, "PATH": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Client tests skipped: node ")
    assert done.stdout.strip().endswith("not installed.")
