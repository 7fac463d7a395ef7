"""Running commands for the Docker tests: bounded, with the output in the error."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

DEFAULT_LIMIT_SECONDS = 120.0


class CommandFailed(AssertionError):
    """A command ended with another status than the test wants, or not in time."""


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str | None] | None = None,
    stdin: bytes | None = None,
    limit_seconds: float = DEFAULT_LIMIT_SECONDS,
    want: int | None = 0,
) -> str:
    """Run `command`; its standard output and error together.

    `env` is added to the environment; None takes a variable out of it. `want` is the exit
    status asked for, None for any.

    Raises:
        CommandFailed: another status, or no end within `limit_seconds`; with the last output.
    """
    environment = {name: value for name, value in {**os.environ, **(env or {})}.items() if value is not None}
    shown = " ".join(str(part) for part in command)
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            env=environment,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        last = (error.stdout or b"").decode(errors="replace")[-3000:]
        raise CommandFailed(f"{shown}: no end within {limit_seconds:g} s\n{last}") from None
    output = done.stdout.decode(errors="replace")
    if want is not None and done.returncode != want:
        raise CommandFailed(f"{shown}: exit status {done.returncode}, wanted {want}\n{output[-4000:]}")
    return output


def succeeds(command: Sequence[str | Path], limit_seconds: float = 30.0) -> bool:
    """Whether `command` exists and ends with status 0 in time."""
    try:
        run(command, limit_seconds=limit_seconds)
    except (OSError, CommandFailed):
        return False
    return True
