"""The documents against the code: settings, tools, commands, links, messages and versions that they name."""

from __future__ import annotations

import argparse
import ast
import asyncio
import io
import json
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from doc_rag import __version__
from doc_rag.setting_values import DEFAULT_EXTENSIONS, MORE_EXTENSIONS
from doc_rag.settings import VARIABLES, load_settings
from tests.support.written_tables import modules, settings_rows

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SKILL_FILE = ROOT / "skills" / "search-docs" / "SKILL.md"
SKILL = SKILL_FILE.read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "skills/search-docs/SKILL.md")

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def fences(text: str, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(text) if kind == language]


def prose(text: str) -> str:
    return FENCE.sub("", text)


def code_of(text: str) -> Iterator[str]:
    """Everything set as code: the lines of code blocks, and spans."""
    for _, body in FENCE.findall(text):
        yield from body.splitlines()
    yield from SPAN.findall(prose(text))


def rows(text: str) -> list[list[str]]:
    """The cells of every table row."""
    lines = [line for line in prose(text).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


# --- settings ---------------------------------------------------------------------------------------


def test_the_readme_has_every_setting_with_its_default_and_help() -> None:
    missing = [row for row in settings_rows() if row not in README.splitlines()]
    assert missing == [], "run: python -m tests.support.written_tables"


def test_the_readme_names_no_setting_that_does_not_exist() -> None:
    named = set(re.findall(r"\b(?:RAG|VOYAGE|OPENAI|AZURE_OPENAI)_[A-Z_]+\b", README))
    assert named - {variable.name for variable in VARIABLES} == {"RAG_ENV_FILE"}


def test_the_readme_has_the_variables_of_compose() -> None:
    example = text_of(".env.example").split("Docker Compose", 1)[1]
    names = re.findall(r"^# ([A-Z_]+)=", example, re.MULTILINE)
    assert names
    assert [name for name in names if not re.search(rf"^\| `{name}` \|", README, re.MULTILINE)] == []


# --- tools ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tools() -> dict[str, list[str]]:
    """Name of every tool, with its parameters as they are written in Python."""
    from doc_rag.mcp_server import build_server

    def never() -> Any:
        raise AssertionError("listing the tools opened the database")

    server = build_server(never, load_settings({"RAG_ENV_FILE": os.devnull}))
    listed = asyncio.run(server.list_tools())
    return {tool.name: list(_parameters(tool.input_schema)) for tool in listed}


def _parameters(schema: dict[str, Any]) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        yield name if name in schema.get("required", ()) else f"{name}={field.get('default')!r}"


def test_there_are_eight_tools(tools: dict[str, list[str]]) -> None:
    assert len(tools) == 8


def test_the_readme_has_every_tool_with_its_parameters(tools: dict[str, list[str]]) -> None:
    found = {row[0].strip("`"): row[1] for row in rows(README)}
    for name, parameters in tools.items():
        expected = ", ".join(f"`{parameter}`" for parameter in parameters) or "none"
        assert found.get(name) == expected, name


def test_the_skill_has_every_tool_with_its_parameters(tools: dict[str, list[str]]) -> None:
    spans = set(SPAN.findall(SKILL))
    assert [n for n, parameters in tools.items() if f"{n}({', '.join(parameters)})" not in spans] == []


# --- commands ---------------------------------------------------------------------------------------


def makefile_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z0-9-]*):", text_of("Makefile"), re.MULTILINE))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_make_target_that_is_named_exists(name: str) -> None:
    named = {
        target
        for code in code_of(text_of(name))
        for targets in re.findall(r"\bmake((?: [a-z][a-z0-9-]*)+)(?![\w=])", code)
        for target in targets.split()
    }
    assert named <= makefile_targets()


def test_contributing_says_what_every_folder_of_tests_holds() -> None:
    folders = {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    named = {row[0].strip("`").rstrip("/") for row in rows(text_of("CONTRIBUTING.md"))}
    assert folders - {"tests"} - named == set()


def test_the_readme_begins_with_the_two_commands() -> None:
    commands = [line.split("#")[0].strip() for line in fences(README, "sh")[0].splitlines()]
    assert commands == ["make demo", "make test"]


def test_the_readme_has_every_option_of_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    from doc_rag.cli import _parser, main

    [commands] = [a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction)]
    documented = {
        row[0].strip("`").split()[1]: row[1] for row in rows(README) if row[0].startswith("`doc-rag ")
    }
    assert documented.keys() == commands.choices.keys()
    for name, said in documented.items():
        with pytest.raises(SystemExit):
            main([name, "--help"])
        options = set(re.findall(r"^  (--?[a-z][a-z-]*)", capsys.readouterr().out, re.MULTILINE)) - {"-h"}
        assert set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", said.split(";")[-1])) == options, name


# --- links and files --------------------------------------------------------------------------------


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return kept.replace(" ", "-")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_leads_somewhere(name: str) -> None:
    text = text_of(name)
    anchors = {slug(title) for title in re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)}
    for target in LINK.findall(prose(text)):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        elif not target.startswith("https://"):
            assert ((ROOT / name).parent / target).exists(), target


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_file_that_is_named_exists(name: str) -> None:
    paths = {
        span
        for span in SPAN.findall(prose(text_of(name)))
        if re.fullmatch(r"(src|docs|tests|skills|benchmarks|\.ci|\.claude|\.claude-plugin)/[\w./-]*", span)
    }
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_document_names_a_place_of_one_machine(name: str) -> None:
    assert re.findall(r"(?<![\w.])/(?:work|root|home|tmp)/[^\s`\"]*", text_of(name)) == []


# --- code in the documents --------------------------------------------------------------------------


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_code_block_is_closed(name: str) -> None:
    marks = [line for line in text_of(name).splitlines() if line.startswith("```")]
    assert len(marks) % 2 == 0
    assert all(mark == "```" for mark in marks[1::2])


def test_the_three_diagrams_are_whole() -> None:
    diagrams = fences(README, "mermaid")
    assert len(diagrams) == 3
    for diagram in diagrams:
        assert diagram.startswith("flowchart LR\n")
        for opening, closing in ("[]", "()", "{}"):
            assert diagram.count(opening) == diagram.count(closing)
        assert diagram.count('"') % 2 == 0


def test_every_json_block_is_json_and_every_python_block_is_python() -> None:
    for body in fences(README, "json"):
        json.loads(body)
    for body in fences(README, "python"):
        ast.parse(body)
    assert fences(README, "json") and fences(README, "python")


def test_the_example_for_clients_is_json_and_starts_our_server() -> None:
    servers = json.loads(text_of(".mcp.json.example"))["mcpServers"]
    [path] = [part for part in servers["doc-rag"]["args"] if part.endswith(".py")]
    assert (ROOT / path.split("doc-rag-mcp/", 1)[1]).is_file()


def test_the_env_block_of_the_quick_start_is_valid() -> None:
    [block] = [body for body in fences(README, "sh") if body.startswith("RAG_DOCS_DIR=")]
    values = dict(line.split("=", 1) for line in block.splitlines())
    assert load_settings(values | {"RAG_ENV_FILE": os.devnull}).warnings == ()


# --- claims about the code --------------------------------------------------------------------------


def string_constants() -> set[str]:
    """Every string in the package, of f-strings the fixed parts."""
    found: set[str] = set()
    for path in (ROOT / "src" / "doc_rag").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found |= {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return found


def test_every_message_under_troubleshooting_is_one_of_ours() -> None:
    section = README.split("## Troubleshooting", 1)[1].split("\n## ", 1)[0]
    messages = [span for row in rows(section) for span in SPAN.findall(row[0])]
    constants = string_constants()
    assert len(messages) > 10
    assert [m for m in messages if not any(m in constant for constant in constants)] == []


def test_the_readme_has_every_ending_that_can_be_read() -> None:
    section = README.split("## Adding documents", 1)[1].split("\n## ", 1)[0]
    endings = {span for span in SPAN.findall(section) if re.fullmatch(r"\.[a-z]+", span)}
    assert endings - {".gitignore", ".ragignore"} == {*DEFAULT_EXTENSIONS, *MORE_EXTENSIONS}


def test_the_readme_has_the_default_model_of_each_provider() -> None:
    from doc_rag.embed.models import DEFAULT_MODELS, openai_model, voyage_model
    from doc_rag.embed.weights import SHIPPED_DIMS, SHIPPED_MAX_TOKENS, SHIPPED_MODEL

    section = README.split("## Choosing a provider", 1)[1].split("\n## ", 1)[0]
    table = {row[0].split("`")[1]: row for row in reversed(rows(section)[1:])}
    for provider, model in DEFAULT_MODELS.items():
        known = voyage_model(model) if provider == "voyage" else openai_model(model)
        assert table[provider][2] == f"`{model}`"
        assert table[provider][3].startswith(str(known.default_dims))
    assert table["local"][2:4] == [f"`{SHIPPED_MODEL}`", str(SHIPPED_DIMS)]
    assert f"reads {SHIPPED_MAX_TOKENS} tokens" in README


def test_the_map_of_modules_has_every_module_and_no_other() -> None:
    section = ARCHITECTURE.split("## Module map", 1)[1].split("\n## ", 1)[0]
    mapped = {span for row in rows(section) for span in SPAN.findall(row[0])} - {"src/doc_rag/"}
    assert mapped == modules().keys(), "run: python -m tests.support.written_tables"


def imports_of(path: Path) -> set[str]:
    """Full names of the modules that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def importers_of(package: str) -> set[str]:
    folder = ROOT / "src" / "doc_rag"
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if any(name == package or name.startswith(f"{package}.") for name in imports_of(path))
    }


def test_the_parts_called_pure_import_no_database_no_provider_and_no_server() -> None:
    [named] = re.findall(r"The pure parts \(([^)]+)\)", ARCHITECTURE)
    pure = {f"{name}.py" for name in SPAN.findall(named)}
    assert len(pure) == 5
    for package in ("doc_rag.store", "doc_rag.embed", "doc_rag.settings", "psycopg", "mcp", "os", "httpx"):
        assert pure.isdisjoint(importers_of(package)), package


def test_the_service_and_the_store_know_nothing_of_servers_and_the_store_nothing_of_providers() -> None:
    servers = importers_of("mcp") | importers_of("starlette") | importers_of("uvicorn")
    assert "mcp_server.py" in servers
    assert not {name for name in servers if name.startswith(("store/", "embed/", "extract/", "service"))}
    assert not {name for name in importers_of("doc_rag.embed") if name.startswith("store/")}
    for entry in ("db", "server", "ingest"):
        assert importers_of(entry) == set()


# --- the skill, the plugin, versions ----------------------------------------------------------------


def test_the_skill_is_found_from_the_working_directory_and_is_the_one_copy() -> None:
    link = ROOT / ".claude" / "skills" / "search-docs"
    assert link.is_symlink() and not os.path.isabs(os.readlink(link))
    assert (link / "SKILL.md").samefile(SKILL_FILE)


def test_the_skill_says_what_it_is_and_when_to_use_it() -> None:
    front = yaml.safe_load(SKILL.split("---\n", 2)[1])
    assert front["name"] == SKILL_FILE.parent.name
    assert 50 < len(front["description"]) <= 1024
    assert "Use when" in front["description"]


def test_the_plugin_manifest_has_our_version_and_its_skills_folder_is_here() -> None:
    manifest = json.loads(text_of(".claude-plugin/plugin.json"))
    assert re.fullmatch(r"[a-z][a-z0-9-]*", manifest["name"])
    assert manifest["version"] == __version__
    assert manifest.keys() <= {"name", "version", "description", "author", "license", "keywords"}
    assert list((ROOT / "skills").glob("*/SKILL.md")) == [SKILL_FILE]


def test_all_versions_agree() -> None:
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    assert project["version"] == __version__
    newest = re.findall(r"^## .*?(\d+\.\d+\.\d+)", text_of("CHANGELOG.md"), re.MULTILINE)[0]
    assert newest == __version__


# --- the sample corpus ------------------------------------------------------------------------------


def test_the_sample_is_small_nested_and_of_every_default_kind() -> None:
    files = [path for path in (ROOT / "docs").rglob("*") if path.is_file()]
    assert 5 <= len(files) <= 11
    assert {path.suffix for path in files} == {".md", ".markdown", ".txt", ".pdf"}
    assert sum(path.stat().st_size for path in files) < 100_000
    assert len({path.parent for path in files}) > 3


def test_the_sample_pdf_is_what_its_script_writes() -> None:
    from pypdf import PdfReader

    from tests.support.make_sample_pdf import OUTPUT, build

    written, built = (
        [page.extract_text() for page in PdfReader(io.BytesIO(data)).pages]
        for data in (OUTPUT.read_bytes(), build())
    )
    assert written == built
    assert len(written) == 4
