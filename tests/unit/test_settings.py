import os
from pathlib import Path

import pytest

from doc_rag.errors import SettingsError
from doc_rag.setting_values import Secret, collection_name_problem
from doc_rag.settings import VARIABLES, Settings, load_settings

NO_FILE = {"RAG_ENV_FILE": os.devnull}


def problems(**values: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(NO_FILE | values)
    return caught.value.problems


def test_defaults_stand_where_nothing_is_set() -> None:
    settings = load_settings(NO_FILE)
    assert (settings.chunk_size, settings.chunk_overlap) == (800, 100)
    assert (settings.cache_max_size, settings.cache_ttl_seconds) == (256, 600)
    assert (settings.port, settings.embed_provider) == (8743, "voyage")
    assert settings.database_url is None


def test_an_unset_collection_falls_back_with_a_warning() -> None:
    settings = load_settings(NO_FILE)
    assert settings.collection == "project_docs"
    assert "RAG_COLLECTION" in settings.warnings[0]
    assert load_settings(NO_FILE | {"RAG_COLLECTION": "x"}).warnings == ()


def test_all_problems_are_told_at_once_and_name_the_variable() -> None:
    told = problems(RAG_PORT="0", RAG_CHUNK_SIZE="many", RAG_EMBED_PROVIDER="cohere")
    assert len(told) == 3
    assert told[0].startswith("RAG_CHUNK_SIZE=many (from the environment) must be a whole number")
    assert "voyage, azure-openai, openai, local" in told[1]
    assert "RAG_PORT=0" in told[2]


def test_rules_between_settings_are_checked() -> None:
    (told,) = problems(RAG_CHUNK_SIZE="200", RAG_CHUNK_OVERLAP="150")
    assert "RAG_CHUNK_OVERLAP=150" in told and "RAG_CHUNK_SIZE=200" in told


def test_a_bad_secret_is_not_shown() -> None:
    (told,) = problems(RAG_DATABASE_URL="mysql://user:hunter2@host/db")
    assert "RAG_DATABASE_URL" in told and "hunter2" not in told


def test_secrets_hide_in_every_representation() -> None:
    settings = load_settings(
        NO_FILE | {"VOYAGE_API_KEY": "pa-secret", "RAG_DATABASE_URL": "postgresql://u:pw123@h/d"}
    )
    shown = f"{settings!r} {settings} {settings.voyage_api_key} {settings.voyage_api_key!r}"
    assert "pa-secret" not in shown and "pw123" not in shown
    assert settings.voyage_api_key == Secret("pa-secret")
    assert settings.voyage_api_key is not None and settings.voyage_api_key.reveal() == "pa-secret"


def test_an_empty_value_counts_as_unset() -> None:
    assert load_settings(NO_FILE | {"RAG_PORT": "", "VOYAGE_API_KEY": "  "}).voyage_api_key is None


def test_the_environment_wins_over_the_file_and_the_command_line_over_both(tmp_path: Path) -> None:
    env_file = tmp_path / ".env"
    env_file.write_text("RAG_PORT=1111\nRAG_CACHE_MAX_SIZE=11\nRAG_COLLECTION=from_file\n", encoding="utf-8")
    settings = load_settings(
        {"RAG_ENV_FILE": str(env_file), "RAG_PORT": "2222", "RAG_COLLECTION": "from_environment"},
        overrides={"RAG_COLLECTION": "from_command"},
    )
    assert (settings.cache_max_size, settings.port, settings.collection) == (11, 2222, "from_command")
    assert settings.env_file == env_file


def test_a_relative_path_is_relative_to_where_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env_file = tmp_path / "project" / ".env"
    env_file.parent.mkdir()
    env_file.write_text("RAG_DOCS_DIR=notes\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_settings({"RAG_ENV_FILE": str(env_file)}).docs_dir == env_file.parent / "notes"
    from_environment = load_settings({"RAG_ENV_FILE": str(env_file), "RAG_DOCS_DIR": "notes"})
    assert from_environment.docs_dir == tmp_path / "notes"


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="RAG_ENV_FILE"):
        load_settings({"RAG_ENV_FILE": str(tmp_path / "none")})


def test_a_file_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    env_file = tmp_path / ".env"
    env_file.write_bytes(b"RAG_PORT=\xff\xfe")
    with pytest.raises(SettingsError, match="UTF-8"):
        load_settings({"RAG_ENV_FILE": str(env_file)})


def test_a_dollar_sign_in_a_value_stays_what_it_is(tmp_path: Path) -> None:
    env_file = tmp_path / ".env"
    env_file.write_text("RAG_AUTH_TOKEN=a$HOME-b\n", encoding="utf-8")
    token = load_settings({"RAG_ENV_FILE": str(env_file)}).auth_token
    assert token is not None and token.reveal() == "a$HOME-b"


def test_every_variable_is_a_field() -> None:
    fields = set(Settings.__dataclass_fields__)
    assert {variable.field for variable in VARIABLES} | {"env_file", "warnings"} == fields


def test_extensions_take_dots_or_not_and_all() -> None:
    assert load_settings(NO_FILE | {"RAG_EXTENSIONS": "md, .TXT"}).extensions == (".md", ".txt")
    assert ".docx" in load_settings(NO_FILE | {"RAG_EXTENSIONS": "all"}).extensions
    (told,) = problems(RAG_EXTENSIONS=".md,.exe")
    assert ".exe" in told


@pytest.mark.parametrize(
    "name", ["a", "my docs", 'it\'s "x"; drop table', "Grüße", "😀", "x" * 200, "%s {0}"]
)
def test_any_printable_name_is_a_collection(name: str) -> None:
    assert collection_name_problem(name) is None


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\x00b", "x" * 201, "\ud800"])
def test_other_names_are_refused_with_the_rule(name: str) -> None:
    assert "collection's name" in str(collection_name_problem(name))


def test_hosts_origins_and_networks_are_lists_and_checked() -> None:
    settings = load_settings(
        NO_FILE
        | {
            "RAG_ALLOWED_HOSTS": "Docs.example.com, other:8443",
            "RAG_ALLOWED_ORIGINS": "https://App.example.com",
            "RAG_TRUSTED_PROXIES": "10.0.0.7,172.16.0.0/12",
        }
    )
    assert settings.allowed_hosts == ("docs.example.com", "other:8443")
    assert settings.allowed_origins == ("https://app.example.com",)
    assert settings.trusted_proxies == ("10.0.0.7", "172.16.0.0/12")
    told = problems(
        RAG_ALLOWED_HOSTS="https://x", RAG_ALLOWED_ORIGINS="app.example.com", RAG_TRUSTED_PROXIES="localhost"
    )
    assert len(told) == 3


def test_a_refused_address_does_not_show_its_password() -> None:
    (told,) = problems(OPENAI_BASE_URL="ftp://user:hunter2@host/v1")
    assert "OPENAI_BASE_URL" in told and "hunter2" not in told


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://bob:s3cret word@h:5432/x",
        "postgresql://bob:hunter2/w#rd@127.0.0.1:1/x",
        "postgresql://bob:p@hunter2@127.0.0.1:1/x",
        "postgresql://bob:hunter2@h:abc/x",
    ],
)
def test_an_address_that_its_password_spoils_is_refused_without_showing_it(url: str) -> None:
    (told,) = problems(RAG_DATABASE_URL=url)
    assert told.startswith("RAG_DATABASE_URL (from the environment) has a ")
    assert "hunter2" not in told and "s3cret" not in told


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///doc_rag?host=/var/run/postgresql",
        "postgresql://u:p%40ss%20w%23rd@h:5432/x?sslmode=require",
        "postgres://h1:5432,h2:5433/x?target_session_attrs=read-write",
        "postgresql://u@[::1]:5432/x",
        "postgresql://h/x",
    ],
)
def test_addresses_of_every_form_are_taken(url: str) -> None:
    database_url = load_settings(NO_FILE | {"RAG_DATABASE_URL": url}).database_url
    assert database_url is not None and database_url.reveal() == url


def test_a_misspelt_name_is_warned_of(tmp_path: Path) -> None:
    env_file = tmp_path / ".env"
    env_file.write_text("RAG_CHUNK_SIZ=5\nRAG_COLLECTION=x\nOTHER=1\n", encoding="utf-8")
    settings = load_settings({"RAG_ENV_FILE": str(env_file), "RAG_ZZZ": "1"})
    assert settings.warnings == (
        "RAG_CHUNK_SIZ is set, but no setting is called so; did you mean RAG_CHUNK_SIZE?",
        "RAG_ZZZ is set, but no setting is called so.",
    )
