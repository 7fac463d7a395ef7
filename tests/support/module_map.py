"""Writes the module map of ARCHITECTURE.md from the first sentence of each module's docstring.

python -m tests.support.module_map
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "doc_rag"
DOCUMENT = ROOT / "ARCHITECTURE.md"
HEAD = "| `src/doc_rag/` | |\n|---|---|\n"


def modules() -> dict[str, str]:
    """What each module says of itself, by its path in the package: its own modules first, then each folder's."""
    paths = sorted(PACKAGE.rglob("*.py"), key=lambda path: (path.parent, path.name))
    found = {}
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        says_only_what_it_is = len(tree.body) < 2
        if not says_only_what_it_is:
            found[path.relative_to(PACKAGE).as_posix()] = _first_sentence(ast.get_docstring(tree) or "")
    return found


def _first_sentence(docstring: str) -> str:
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return re.split(r"(?<=[^.])\.(?= |$)", paragraph)[0].replace("|", "\\|")


def table() -> str:
    return HEAD + "".join(f"| `{name}` | {said} |\n" for name, said in modules().items())


def main() -> None:
    """Replace the table in the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(HEAD, 1)
    after = re.sub(r"\A(?:\|.*\n|@@MAP@@\n)*", "", rest)
    DOCUMENT.write_text(before + table() + after, encoding="utf-8")


if __name__ == "__main__":
    main()
