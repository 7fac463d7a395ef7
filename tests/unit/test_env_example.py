"""`.env.example`, the compose file and the Dockerfile say what the settings say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from doc_rag.settings import VARIABLES

ROOT = Path(__file__).resolve().parents[2]
LINE = re.compile(r"^# ([A-Z][A-Z0-9_]*)=(.*)$", re.MULTILINE)
COMPOSE_ONLY = {"POSTGRES_PASSWORD": "", "DOC_RAG_DB_PORT": "5433", "DOC_RAG_UID": "10001"} | {
    "DOC_RAG_IMAGE": "doc-rag-mcp",
    "EXTRAS": "",
}
NOT_HANDED_ON = {
    "RAG_DATA_DIR": "the server in Docker has compose's database, never an embedded one",
}


@pytest.fixture(scope="module")
def example() -> str:
    return (ROOT / ".env.example").read_text()


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]
    return found


def test_the_example_names_every_setting_with_its_default_and_no_other(example: str) -> None:
    expected = {variable.name: variable.default for variable in VARIABLES} | COMPOSE_ONLY
    assert dict(LINE.findall(example)) == expected
    assert len(LINE.findall(example)) == len(expected)


def test_copying_the_example_changes_nothing(example: str) -> None:
    assert [line for line in example.splitlines() if line and not line.startswith("#")] == []


def test_every_setting_in_the_example_is_explained_above_it(example: str) -> None:
    lines = example.splitlines()
    for number, line in enumerate(lines):
        if LINE.match(line):
            assert re.match(r"# [^-=]", lines[number - 1]), line
            assert not LINE.match(lines[number - 1]), line


def test_compose_hands_every_setting_to_the_server_as_it_is_outside(services: dict[str, Any]) -> None:
    environment = services["server"]["environment"]
    for variable in VARIABLES:
        if variable.name in NOT_HANDED_ON:
            assert variable.name not in environment, NOT_HANDED_ON[variable.name]
        else:
            assert variable.name in environment
    chosen = {name: value for name, value in environment.items() if value is not None}
    assert set(chosen) == {"RAG_DATABASE_URL", "PGPASSWORD", "RAG_AUTH_TOKEN", "RAG_DOCS_DIR", "RAG_PORT"}
    known = {variable.name for variable in VARIABLES} | {"PGPASSWORD"}
    assert set(environment) <= known


def test_every_variable_of_the_compose_file_is_in_the_example(example: str) -> None:
    text = (ROOT / "docker-compose.yaml").read_text()
    used = set(re.findall(r"(?<!\$)\$\{([A-Z_]+)", text))
    assert used <= dict(LINE.findall(example)).keys()


def test_compose_publishes_on_loopback_alone(services: dict[str, Any]) -> None:
    for service in services.values():
        assert service["ports"]
        for port in service["ports"]:
            assert port.startswith("127.0.0.1:")


def test_the_compose_file_keeps_to_what_both_versions_read() -> None:
    text = (ROOT / "docker-compose.yaml").read_text()
    assert not re.search(r"^name:|^ +start_interval:|^version:", text, re.MULTILINE)


def test_the_dockerfile_keeps_to_what_the_legacy_builder_reads() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert "--mount" not in "".join(re.findall(r"^RUN.*", text, re.MULTILINE))
    assert not re.search(r"^(RUN|COPY).*<<", text, re.MULTILINE)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f'org.opencontainers.image.version="{version}"' in text
