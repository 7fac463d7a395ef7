"""`make test-docker`: image and compose files on a real Docker engine, from a clean copy of the checkout.

Pulls nothing: base images that are not here are made from Debian's packages (tests/docker/images.py).
Where no engine can be had it says so and ends well. Prints a line a check, and at last
"N passed, N failed, N skipped".
"""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.docker import checks_before as before
from tests.docker import checks_image as image
from tests.docker import checks_running as running
from tests.docker.engine import NoEngine, docker_engine
from tests.docker.images import ensure_images
from tests.docker.stack import Stack

Check = Callable[[Stack], str]
BEFORE: tuple[Check, ...] = (
    before.compose_refuses_without_its_secrets,
    before.make_up_asks_for_a_token_first,
    before.an_initialising_database_is_not_healthy,
    before.make_auth_token_writes_a_private_env,
)
UP: Check = running.make_up_becomes_healthy
AFTER: tuple[Check, ...] = (
    image.no_layer_holds_a_secret,
    image.the_image_has_no_build_tools_and_no_root,
    image.the_container_may_do_nothing_it_need_not,
    running.a_client_indexes_and_asks,
    running.the_host_fills_the_same_database,
    running.the_make_targets_reach_the_server,
    running.a_second_server_shares_the_database,
    running.redeploy_keeps_the_index,
    running.a_killed_server_comes_back,
    running.a_killed_database_comes_back,
    running.the_server_starts_fast_and_stops_cleanly,
    running.down_keeps_the_index,
    running.a_backup_survives_a_reset,
)


def passes(check: Check, stack: Stack) -> bool:
    """Run one check, print its line, and on failure what happened."""
    name = check.__name__.replace("_", " ")
    started = time.monotonic()
    try:
        detail = check(stack)
    except Exception:  # noqa: BLE001  # whatever a check meets is its failure, and the next ones still run
        print(f"FAIL  {name} ({time.monotonic() - started:.1f} s)\n{traceback.format_exc()}", flush=True)
        return False
    print(f"ok    {name} ({time.monotonic() - started:.1f} s): {detail}", flush=True)
    return True


def check_all(stack: Stack, wanted: str) -> tuple[int, int, int]:
    """(passed, failed, skipped). Without a healthy stack the checks on it are skipped, and said to be."""
    stack.prepare()
    results = [passes(check, stack) for check in BEFORE]
    up = passes(UP, stack)
    results.append(up)
    chosen = [check for check in AFTER if wanted in check.__name__]
    if up:
        results += [passes(check, stack) for check in chosen]
    else:
        print(f"skip  {len(chosen)} checks of the running stack: it is not up", flush=True)
    return sum(results), len(results) - sum(results), 0 if up else len(chosen)


def main() -> int:
    """Exit status 0 where everything passed or there is no engine, else 1. An argument picks later checks by name."""
    started = time.monotonic()
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        with docker_engine() as engine, tempfile.TemporaryDirectory(prefix="doc-rag-docker-") as folder:
            print(f"Docker: {engine}", flush=True)
            for name, how in ensure_images().items():
                print(f"{name}: {how}", flush=True)
            stack = Stack(Path(folder))
            try:
                passed, failed, skipped = check_all(stack, wanted)
            finally:
                stack.remove()
    except NoEngine as reason:
        print(f"Docker tests skipped: {reason}.")
        passed, failed, skipped = 0, 0, len(BEFORE) + 1 + len(AFTER)
    print(f"took {time.monotonic() - started:.0f} s")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
