"""The pinned exports hold every dependency of pyproject.toml, at a version that it allows."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def pins(name: str) -> dict[str, str]:
    """Name to version; anything but a plain pin is an error, since both files also serve as constraints."""
    lines = [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]
    found = [Requirement(line) for line in lines]
    for requirement in found:
        assert not requirement.extras and str(requirement.specifier).startswith("=="), requirement
    return {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in found}


@pytest.mark.parametrize("line", [*PROJECT["dependencies"], *EXTRAS["local"], *EXTRAS["formats"]])
def test_requirements_txt_pins_what_the_package_and_its_extras_need(line: str) -> None:
    requirement = Requirement(line)
    assert pins("requirements.txt")[canonicalize_name(requirement.name)] in requirement.specifier, (
        "run: make lock"
    )


@pytest.mark.parametrize("line", [line for line in EXTRAS["dev"] if not line.startswith(PROJECT["name"])])
def test_the_test_tools_are_pinned_too(line: str) -> None:
    requirement = Requirement(line)
    both = pins("requirements.txt") | pins(".ci/constraints.txt")
    assert both[canonicalize_name(requirement.name)] in requirement.specifier, "run: make lock"
