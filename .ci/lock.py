"""Write the pinned exports from the virtual environment that the tests passed in.

requirements.txt holds the package with its `local` and `formats` extras, .ci/constraints.txt what
the `dev` extra adds. Both are plain `name==version` lines, good as a requirements file and as
constraints. Run by `make lock`, after trying newer versions in .venv.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
DISTRIBUTION = "doc-rag-mcp"
HEAD = """# Written by `make lock` from the versions that the tests passed with; pyproject.toml says what is needed.
"""
REQUIREMENTS = HEAD + "# pip install -r requirements.txt\n"
CONSTRAINTS = HEAD + "# Used as constraints (-c) where the dev extra is installed.\n"


def closure(distribution: str, extras: Iterable[str]) -> dict[str, str]:
    """Canonical name to installed version of everything `distribution[extras]` needs, itself left out."""
    pins: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    queue = [(canonicalize_name(distribution), extra) for extra in ("", *extras)]
    while queue:
        name, extra = queue.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        found = metadata.distribution(name)
        if name != canonicalize_name(distribution):
            pins[name] = found.version
        for line in found.requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                needed = canonicalize_name(requirement.name)
                queue.extend((needed, wanted) for wanted in ("", *requirement.extras))
    return pins


def render(head: str, pins: dict[str, str]) -> str:
    """The file's text: `head`, then one pin a line, by name."""
    return head + "".join(f"{name}=={pins[name]}\n" for name in sorted(pins))


def main() -> None:
    """Write both files."""
    run = closure(DISTRIBUTION, ["local", "formats"])
    dev = closure(DISTRIBUTION, ["dev"])
    (ROOT / "requirements.txt").write_text(render(REQUIREMENTS, run), encoding="utf-8")
    extra = {name: version for name, version in dev.items() if name not in run}
    (ROOT / ".ci" / "constraints.txt").write_text(render(CONSTRAINTS, extra), encoding="utf-8")


if __name__ == "__main__":
    main()
