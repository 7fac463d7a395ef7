"""A seeded folder of documents of every shape, and seeded changes to it between runs.

Remembers every content that each file ever had, so that a check can ask whether what is stored is one
of them, whole.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

from tests.support.documents import pdf_of

WORDS = [
    "anvil", "barge", "cedar", "delta", "ember", "flint", "grain", "harbor", "indigo", "jetty", "kiln", "lathe",
    "mortar", "nettle", "orchard", "pulley", "quarry", "rudder", "saddle", "timber", "urchin", "vessel", "willow",
]  # fmt: skip


class Corpus:
    """The folder, its history, and the generator that all of it comes from.

    `notes` are files of one chunk, `reports` of many; `logs` says how many days each dated series has.
    """

    def __init__(
        self,
        root: Path,
        seed: int,
        *,
        notes: int = 140,
        reports: int = 40,
        logs: tuple[int, ...] = (9, 6),
        pdf: bool = True,
    ) -> None:
        self.root = root
        self.contents: dict[bytes, bytes] = {}
        """Every content ever written, by its SHA-256."""
        self.versions: dict[str, set[bytes]] = {}
        """The hashes of every content that a source ever had."""
        self._random = random.Random(seed)
        self._serial = 0
        self._logs = len(logs)
        self._fill(notes, reports, logs, pdf)

    @property
    def names(self) -> list[str]:
        """Every file that is there now, sorted."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file())

    def change(self, share: float) -> None:
        """Edit, add, remove and rename about this share of the files."""
        kinds: list[Callable[[], None]] = [self._edit] * 5 + [self._add] * 2 + [self._remove, self._rename]
        for _ in range(max(1, round(share * len(self.names)))):
            self._random.choice(kinds)()

    def _fill(self, notes: int, reports: int, logs: tuple[int, ...], pdf: bool) -> None:
        for i in range(notes):
            ending = self._random.choice(["md", "txt"])
            self._write(f"{self._folder()}note-{i:03}.{ending}", self._note())
        for i in range(reports):
            self._write(f"{self._folder()}report-{i:02}.md", self._report())
        for i, days in enumerate(logs):
            for day in range(days):
                self._write(f"logs/{self._log_name(i, day)}", self._log(i, day))
        if pdf:
            self._write("manual.pdf", pdf_of(*(self._note() for _ in range(3))))
        self._write("empty.md", "")
        self._write("binary.txt", bytes(self._random.randrange(256) for _ in range(4_000)))

    def _write(self, name: str, content: str | bytes) -> None:
        data = content.encode() if isinstance(content, str) else content
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self._remember(name, data)

    def _remember(self, name: str, data: bytes) -> None:
        digest = hashlib.sha256(data).digest()
        self.contents[digest] = data
        self.versions.setdefault(name, set()).add(digest)

    # --- contents -----------------------------------------------------------------------------

    def _words(self, count: int) -> str:
        """Words with a number of their own among them: no two texts are equal by accident."""
        self._serial += 1
        return f"{' '.join(self._random.choices(WORDS, k=count))} {self._serial}."

    def _note(self) -> str:
        return f"{self._words(30).capitalize()}\n"

    def _report(self) -> str:
        parts = [f"# Report {self._words(3)}"]
        for i in range(self._random.randint(3, 10)):
            parts.append(f"## Part {i}")
            parts += [self._words(self._random.randint(20, 110)) for _ in range(self._random.randint(1, 3))]
        return "\n\n".join(parts) + "\n"

    def _log_name(self, series: int, day: int) -> str:
        return f"log{series}-{date(2026, 1, 1) + timedelta(days=day)}.md"

    def _log(self, series: int, day: int) -> str:
        """Three sections: one that stays, one that changes now and then, one that is of the day."""
        return (
            f"# Log {series}\n\n## Keeper\n\nThe keeper of basin {series} is Ada.\n\n"
            f"## Level\n\nThe level stands at {day // 3} ells.\n\n## Day\n\n{self._words(20)}\n"
        )

    # --- changes ------------------------------------------------------------------------------

    def _folder(self) -> str:
        return self._random.choice(["", "", "north/", "south/deep/"])

    def _pick(self) -> str:
        return self._random.choice(self.names)

    def _edit(self) -> None:
        name = self._pick()
        if name.endswith(".pdf"):
            self._write(name, pdf_of(*(self._note() for _ in range(self._random.randint(1, 4)))))
        elif "report" in name:
            paragraphs = (self.root / name).read_text().split("\n\n")
            at = self._random.randrange(1, len(paragraphs))
            paragraphs[at : at + 1] = self._random.choice(
                [[], [self._words(40)], [paragraphs[at], self._words(90)]]
            )
            self._write(name, "\n\n".join(paragraphs) + "\n")
        elif "log" in name:
            text = (self.root / name).read_text()
            keeper = self._random.choice(["Ada", "Bob", "Cyd"])
            self._write(
                name, text.replace("is Ada", f"is {keeper}") + self._random.choice(["", self._note()])
            )
        else:
            self._write(name, self._note())

    def _add(self) -> None:
        self._serial += 1
        kind = self._random.randrange(4)
        if kind == 0:
            series, day = self._random.randrange(self._logs), self._random.randrange(40)
            self._write(f"logs/{self._log_name(series, day)}", self._log(series, day))
        elif kind == 1:
            self._write(f"{self._folder()}report-new-{self._serial}.md", self._report())
        else:
            self._write(f"{self._folder()}note-new-{self._serial}.md", self._note())

    def _remove(self) -> None:
        (self.root / self._pick()).unlink()

    def _rename(self) -> None:
        old = self._pick()
        self._serial += 1
        new = f"{self._folder()}moved-{self._serial}{Path(old).suffix}"
        (self.root / new).parent.mkdir(parents=True, exist_ok=True)
        (self.root / old).rename(self.root / new)
        self._remember(new, (self.root / new).read_bytes())
