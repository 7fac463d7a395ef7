"""Runs client.mjs, and hands out what it reports while it is still at work."""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clients.packages import HERE, Packages
from tests.mcp.serving import whole_env

Event = dict[str, Any]
SECONDS = 90.0
"""Longest wait for one event."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A line of the TypeScript SDK, and the protocol revision that it is to speak."""

    sdk: str
    revision: str

    def __str__(self) -> str:
        return f"{self.sdk}-{self.revision[:4]}"


KINDS = (Kind("sdk", "2025-11-25"), Kind("client", "2025-11-25"), Kind("client", "2026-07-28"))
OLD, _, NEW = KINDS


def listing() -> Event:
    return {"do": "list"}


def calling(tool: str, **arguments: Any) -> Event:
    return {"do": "call", "tool": tool, "arguments": arguments}


@dataclass
class Session:
    """A client at work. Events come in the order in which they happened to it."""

    process: subprocess.Popen[str]
    stderr: Path
    _lines: queue.Queue[str | None] = field(default_factory=queue.Queue)

    def read(self) -> None:
        """Pass on the client's lines; runs in a thread until it ends."""
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def next(self) -> Event | None:
        """The next event, None after the last."""
        try:
            line = self._lines.get(timeout=SECONDS)
        except queue.Empty:
            raise AssertionError(f"the client is silent for {SECONDS:g} s: {self._said()}") from None
        return None if line is None else dict(json.loads(line))

    def until(self, event: str) -> list[Event]:
        """All events up to the first of that name, which is the last in the list."""
        seen: list[Event] = []
        while not seen or seen[-1]["event"] != event:
            found = self.next()
            assert found is not None, f"no {event}: {seen}, {self._said()}"
            seen.append(found)
        return seen

    def rest(self) -> list[Event]:
        """All events to the end."""
        return list(iter(self.next, None))

    def _said(self) -> str:
        return self.stderr.read_text(errors="replace")[-2_000:]


@contextmanager
def session(
    packages: Packages,
    kind: Kind,
    steps: Sequence[Event],
    stderr: Path,
    *,
    stdio: Mapping[str, Any] | None = None,
    http: Mapping[str, Any] | None = None,
    hosts: Mapping[str, str] | None = None,
    authority: Path | None = None,
) -> Iterator[Session]:
    """A client with that plan. `authority` is a certificate to trust beside the usual ones."""
    script = packages.folder / "client.mjs"
    shutil.copy(HERE / "client.mjs", script)  # modules are looked for beside the script
    plan = {"sdk": kind.sdk, "era": kind.revision, "steps": list(steps), "hosts": dict(hosts or {})}
    plan |= {"stdio": dict(stdio)} if stdio is not None else {"http": dict(http or {})}
    env = whole_env({"NODE_EXTRA_CA_CERTS": str(authority)} if authority else {})
    with stderr.open("w") as said:
        process = subprocess.Popen(
            [packages.node, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env=env,
            text=True,
            encoding="utf-8",
        )
    made = Session(process, stderr)
    reader = threading.Thread(target=made.read, daemon=True)
    reader.start()
    try:
        assert process.stdin
        process.stdin.write(json.dumps(plan))
        process.stdin.close()
        yield made
    finally:
        if process.poll() is None:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        reader.join(10)
        assert process.stdout
        process.stdout.close()


@dataclass(frozen=True, slots=True)
class Transcript:
    """A whole session by step."""

    events: list[Event]

    def one(self, event: str) -> Event:
        (found,) = (e for e in self.events if e["event"] == event)
        return found

    def tools(self) -> dict[str, Event]:
        return {tool["name"]: tool for tool in self.one("tools")["tools"]}

    def step(self, number: int) -> Event:
        """What the client got for that call: the tool's result."""
        (found,) = (e for e in self.events if e["event"] == "result" and e["step"] == number)
        return dict(found["result"])

    def content(self, number: int) -> Event:
        """The structured content of a call that must have succeeded."""
        result = self.step(number)
        assert not result.get("isError"), result
        return dict(result["structuredContent"])

    def refusal(self, number: int) -> str:
        """The text of a call that must be a tool error."""
        result = self.step(number)
        assert result.get("isError") is True, result
        return "\n".join(block["text"] for block in result["content"])

    def progress(self, number: int) -> list[Event]:
        return [e for e in self.events if e["event"] == "progress" and e["step"] == number]

    def before_result(self, number: int) -> bool:
        """Whether all progress of the step came before its result."""
        names = [e["event"] for e in self.events if e.get("step") == number]
        return "progress" not in names[names.index("result") :]


def transcript(session: Session) -> Transcript:
    """Everything the client reports, to its end, which must be a good one."""
    events = session.rest()
    assert events and events[-1] == {"event": "closed"}, (events[-3:], session.stderr.read_text()[-2_000:])
    assert session.process.wait(10) == 0
    return Transcript(events)
