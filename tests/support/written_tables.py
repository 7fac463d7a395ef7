"""Writes the tables that the documents take from the code: the README's settings, ARCHITECTURE's module map.

python -m tests.support.written_tables
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from doc_rag.settings import VARIABLES

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "doc_rag"
SETTINGS_HEAD = "| Variable | Default | Meaning |\n|---|---|---|\n"
MODULES_HEAD = "| `src/doc_rag/` | |\n|---|---|\n"


def settings_rows() -> list[str]:
    """A row for each variable: name, default as in `.env`, help."""
    return [
        f"| `{variable.name}` | {f'`{variable.default}`' if variable.default else 'unset'} | {variable.help} |"
        for variable in VARIABLES
    ]


def modules() -> dict[str, str]:
    """What each module says of itself, by its path in the package: its own modules first, then each folder's."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py"), key=lambda path: (path.parent, path.name)):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        says_only_what_it_is = len(tree.body) < 2
        if not says_only_what_it_is:
            found[path.relative_to(PACKAGE).as_posix()] = _first_sentence(ast.get_docstring(tree) or "")
    return found


def _first_sentence(docstring: str) -> str:
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return re.split(r"(?<=[^.])\.(?= |$)", paragraph)[0].replace("|", "\\|")


def module_rows() -> list[str]:
    return [f"| `{name}` | {said} |" for name, said in modules().items()]


def replace_table(document: Path, head: str, rows: list[str]) -> None:
    """Put `rows` under the table head `head`, in place of those that are there."""
    before, rest = document.read_text(encoding="utf-8").split(head, 1)
    after = re.sub(r"\A(?:\|.*\n)*", "", rest)
    document.write_text(before + head + "".join(f"{row}\n" for row in rows) + after, encoding="utf-8")


if __name__ == "__main__":
    replace_table(ROOT / "README.md", SETTINGS_HEAD, settings_rows())
    replace_table(ROOT / "ARCHITECTURE.md", MODULES_HEAD, module_rows())
