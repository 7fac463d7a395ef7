"""A process of its own that uses an embedded Postgres, driven line by line: acquire, release, query, fork.

The tests need processes that can be killed, interrupted, run as another user and started together.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

ANSWER_SECONDS = 60


class Client:
    """Runs this file as a program and talks to it. `uid` runs it as another user (needs root)."""

    def __init__(
        self,
        data_dir: Path,
        *,
        uid: int | None = None,
        python: str = sys.executable,
        env: dict[str, str] | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            [python, "-P", __file__, os.fspath(data_dir)],  # -P: our neighbours are no standard library
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
            cwd="/",
            env={**os.environ, **(env or {})},
            start_new_session=True,  # a group of its own, as a terminal would give it
        )
        self._read = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, command: str, **arguments: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps([command, arguments]).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """The answer to the oldest unanswered command, which was not refused."""
        answer = self._next()
        assert not isinstance(answer, dict), answer
        return answer

    def refusal(self) -> str:
        """The sentence with which the oldest unanswered command was refused."""
        answer = self._next()
        assert isinstance(answer, dict), f"not refused: {answer}"
        return str(answer["error"])

    def _next(self) -> Any:
        deadline = time.monotonic() + ANSWER_SECONDS
        assert self.process.stdout
        while b"\n" not in self._read:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.process.stdout], [], [], max(left, 0))
            assert ready, f"no answer within {ANSWER_SECONDS} s"
            piece = os.read(self.process.stdout.fileno(), 65536)
            assert piece, f"the client ended (exit {self.process.wait(5)})"
            self._read += piece
        line, self._read = self._read.split(b"\n", 1)
        return json.loads(line)

    def ask(self, command: str, **arguments: Any) -> Any:
        self.send(command, **arguments)
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


def _serve(data_dir: Path) -> None:
    import psycopg

    from doc_rag.errors import DocRagError
    from doc_rag.store.embedded import EmbeddedPostgres

    server = EmbeddedPostgres(data_dir)
    for line in sys.stdin:
        command, arguments = json.loads(line)
        try:
            if command == "acquire":
                answer: Any = server.acquire()
            elif command == "release":
                server.release()
                answer = None
            elif command == "fork":
                answer = os.fork()
                if answer == 0:
                    signal.alarm(ANSWER_SECONDS)
                    signal.pause()
            elif command == "query":
                with psycopg.connect(arguments["url"], autocommit=True) as connection:
                    row = connection.execute(arguments["sql"]).fetchone()
                    answer = str(row[0]) if row else None
            else:
                raise ValueError(command)
        except (DocRagError, psycopg.Error) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    try:
        _serve(Path(sys.argv[1]))
    except KeyboardInterrupt:
        sys.exit(130)
