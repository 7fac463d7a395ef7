"""`make test-clients`: clients of other makers, and nginx, against servers as users start them.

Without Node it says so and ends well; with it, what cannot be installed is a failure. nginx may be
missing: its tests are then skipped with the reason. Arguments go to pytest.
"""

from __future__ import annotations

import subprocess
import sys
import time

from tests.clients import nginx, packages


def main() -> int:
    """Exit status 0 where everything passed or there is no Node, else what failed has."""
    started = time.monotonic()
    try:
        place = packages.folder().relative_to(packages.ROOT)
        if packages.needs_install():
            print(f"Installing the npm packages into {place} (about 320 MB; a minute or two)", flush=True)
            packages.install()
        found = packages.installed()
    except packages.NoNode as reason:
        print(f"Client tests skipped: {reason}.")
        return 0
    except packages.InstallFailed as error:
        print(f"Client tests failed: {error}", file=sys.stderr)
        return 1
    try:
        nginx.unpack()
    except nginx.NoNginx as reason:
        print(f"The proxy's tests are skipped: {reason}.", flush=True)
    print(f"Node {found.version}, after {time.monotonic() - started:.0f} s", flush=True)
    command = [sys.executable, "-m", "pytest", "-m", "clients", "tests/clients", *sys.argv[1:]]
    return subprocess.run(command, cwd=packages.ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
