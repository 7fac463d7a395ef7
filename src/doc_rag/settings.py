"""The only reader of the environment: one table of variables, one frozen `Settings`, one validation.

Values come from the real environment first, then from `.env` (in the checkout's root, else in the
working directory; `RAG_ENV_FILE` names another), then from the table's defaults. A relative path
written in `.env` is relative to that file's folder. An empty value counts as unset.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from doc_rag import setting_values as parse
from doc_rag.errors import SettingsError
from doc_rag.setting_values import Context, Parser, Secret

PROVIDERS = ("voyage", "azure-openai", "openai", "local")
DEFAULT_COLLECTION = "project_docs"
OTHER_NAMES = {"RAG_ENV_FILE", "RAG_TEST_DATABASE_URL"}
"""Names of ours that are no settings: where the settings are, and which server the tests use."""
MAX_STORED_DIMS = 16_000
MIN_TOKEN_CHARS = 32


def _default_data_dir() -> str:
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return "/var/lib/doc-rag"
    if sys.platform == "darwin":
        return "~/Library/Application Support/doc-rag"
    return "~/.local/share/doc-rag"


@dataclass(frozen=True, slots=True)
class Variable:
    """One row of the settings table. `default` is written as in `.env`; empty means unset."""

    name: str
    default: str
    parse: Parser
    help: str

    @property
    def field(self) -> str:
        return self.name.removeprefix("RAG_").lower()


VARIABLES: tuple[Variable, ...] = (
    # Database
    Variable(
        "RAG_DATABASE_URL", "", parse.database_url, "Postgres 15+ with pgvector 0.8+; unset: an embedded one"
    ),
    Variable(
        "RAG_DATA_DIR", "", parse.path, "folder of the embedded Postgres; unset: the user's data folder"
    ),
    # Documents
    Variable("RAG_DOCS_DIR", "./docs", parse.path, "the folder (or one file) to index"),
    Variable(
        "RAG_COLLECTION",
        "",
        parse.collection,
        "the server's own collection; unset: project_docs, with a warning",
    ),
    Variable("RAG_EXTENSIONS", ".pdf,.md,.markdown,.txt", parse.extensions, "file endings to index, or all"),
    Variable("RAG_MAX_FILE_MB", "100", parse.integer(1, 10_000), "larger files are skipped; megabytes"),
    Variable("RAG_PDF_TIMEOUT_SECONDS", "60", parse.number(0.1, 3600), "longest time for one PDF"),
    Variable("RAG_PDF_MEMORY_MB", "1024", parse.integer(128, 65_536), "most memory for one PDF; megabytes"),
    Variable(
        "RAG_REMOVAL_GUARD", "0.5", parse.number(0, 1), "share of removed documents that must be confirmed"
    ),
    Variable("RAG_SERIES_DEDUPE", "true", parse.flag, "store what repeats in name-YYYY-MM-DD files once"),
    Variable("RAG_WATCH", "false", parse.flag, "the server ingests changes of the folder by itself"),
    # Chunks
    Variable("RAG_CHUNK_SIZE", "800", parse.integer(50, 20_000), "largest chunk; characters"),
    Variable(
        "RAG_CHUNK_OVERLAP", "100", parse.integer(0, 10_000), "shared by neighbouring chunks; characters"
    ),
    # Embeddings
    Variable(
        "RAG_EMBED_PROVIDER", "voyage", parse.choice(*PROVIDERS), "voyage, azure-openai, openai or local"
    ),
    Variable("RAG_EMBED_MODEL", "", parse.text, "model; unset: the provider's default"),
    Variable(
        "RAG_EMBED_DIM", "", parse.integer(1, MAX_STORED_DIMS), "dimensions; unset: the model's default"
    ),
    Variable("RAG_EMBED_CONCURRENCY", "4", parse.integer(1, 64), "embedding calls at once"),
    Variable(
        "RAG_EMBED_RETRY_SECONDS", "120", parse.number(0, 86_400), "how long a failing call is tried again"
    ),
    Variable("RAG_EMBED_QUERY_PREFIX", "", parse.text, "put before each query, for models that want it"),
    Variable("RAG_EMBED_DOCUMENT_PREFIX", "", parse.text, "put before each chunk, for models that want it"),
    Variable(
        "RAG_EMBED_LONG_INPUT",
        "average",
        parse.choice("average", "truncate"),
        "text over the model's limit: average its parts, or truncate",
    ),
    Variable("VOYAGE_API_KEY", "", parse.secret, "key for voyage embeddings and reranking"),
    Variable("VOYAGE_BASE_URL", "", parse.url("http", "https"), "another address of the Voyage API"),
    Variable(
        "OPENAI_API_KEY", "", parse.secret, "key for openai; any word where the base URL is not OpenAI's"
    ),
    Variable(
        "OPENAI_BASE_URL",
        "",
        parse.url("http", "https"),
        "an API that speaks OpenAI's, such as Ollama's or vLLM's",
    ),
    Variable("AZURE_OPENAI_ENDPOINT", "", parse.url("http", "https"), "https://NAME.openai.azure.com"),
    Variable("AZURE_OPENAI_API_KEY", "", parse.secret, "key for azure-openai"),
    Variable("AZURE_OPENAI_EMBED_DEPLOYMENT", "", parse.text, "name of the embedding deployment"),
    Variable("AZURE_OPENAI_API_VERSION", "2024-10-21", parse.text, "version of the Azure OpenAI API"),
    Variable("RAG_LOCAL_MODEL_DIR", "", parse.path, "another sentence-transformers folder (BERT) for local"),
    Variable("RAG_PRICES_FILE", "", parse.path, "TOML file of prices that overrides the shipped table"),
    # Search
    Variable("RAG_HYBRID_SEARCH", "false", parse.flag, "fuse vector search with full text (RRF)"),
    Variable("RAG_TEXT_LANGUAGE", "english", parse.language, "Postgres text search configuration"),
    Variable("RAG_RERANK_MODEL", "", parse.text, "Voyage reranker, such as rerank-2.5; wins over hybrid"),
    Variable(
        "RAG_ALLOW_CROSS_PROVIDER_RERANK", "false", parse.flag, "chunk text may go to Voyage to be reranked"
    ),
    Variable(
        "RAG_CACHE_MAX_SIZE", "256", parse.integer(0, 1_000_000), "answers kept; 0 turns the query cache off"
    ),
    Variable("RAG_CACHE_TTL_SECONDS", "600", parse.number(0, 31_536_000), "how long an answer is kept"),
    Variable(
        "RAG_FRESHNESS_CACHE_TTL_SECONDS", "30", parse.number(0, 86_400), "how long a staleness check is kept"
    ),
    Variable(
        "RAG_MAX_RESPONSE_CHARS",
        "48000",
        parse.integer(1_000, 1_000_000),
        "largest answer, its text and data together; bytes",
    ),
    # Server
    Variable(
        "RAG_AUTH_TOKEN", "", parse.secret, "bearer token of the HTTP server; make auth-token writes one"
    ),
    Variable("RAG_PORT", "8743", parse.integer(1, 65_535), "port of the HTTP server"),
    Variable(
        "RAG_ALLOWED_HOSTS",
        "",
        parse.hosts,
        "Host names answered beside loopback; unset: any, the token guards",
    ),
    Variable(
        "RAG_ALLOWED_ORIGINS", "", parse.origins, "browser origins answered beside loopback's; unset: any"
    ),
    Variable("RAG_TRUSTED_PROXIES", "", parse.networks, "addresses whose X-Forwarded-* headers are believed"),
    Variable("RAG_HTTP_STATEFUL", "false", parse.flag, "keep sessions; a restart then strands clients"),
    Variable(
        "RAG_LOG_FORMAT", "text", parse.choice("text", "json"), "text or json, one object a line, on stderr"
    ),
    Variable("RAG_SHUTDOWN_SECONDS", "20", parse.number(1, 3600), "longest time from SIGTERM to the exit"),
    Variable(
        "RAG_REINDEX_DETACHED", "false", parse.flag, "a reindex over HTTP outlives a client that goes away"
    ),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, validated together. Field = variable without RAG_, in lower case."""

    database_url: Secret | None
    data_dir: Path
    docs_dir: Path
    collection: str
    extensions: tuple[str, ...]
    max_file_mb: int
    pdf_timeout_seconds: float
    pdf_memory_mb: int
    removal_guard: float
    series_dedupe: bool
    watch: bool
    chunk_size: int
    chunk_overlap: int
    embed_provider: str
    embed_model: str | None
    embed_dim: int | None
    embed_concurrency: int
    embed_retry_seconds: float
    embed_query_prefix: str | None
    embed_document_prefix: str | None
    embed_long_input: str
    voyage_api_key: Secret | None
    voyage_base_url: str | None
    openai_api_key: Secret | None
    openai_base_url: str | None
    azure_openai_endpoint: str | None
    azure_openai_api_key: Secret | None
    azure_openai_embed_deployment: str | None
    azure_openai_api_version: str
    local_model_dir: Path | None
    prices_file: Path | None
    hybrid_search: bool
    text_language: str
    rerank_model: str | None
    allow_cross_provider_rerank: bool
    cache_max_size: int
    cache_ttl_seconds: float
    freshness_cache_ttl_seconds: float
    max_response_chars: int
    auth_token: Secret | None
    port: int
    allowed_hosts: tuple[str, ...] | None
    allowed_origins: tuple[str, ...] | None
    trusted_proxies: tuple[str, ...] | None
    http_stateful: bool
    log_format: str
    shutdown_seconds: float
    reindex_detached: bool
    env_file: Path | None
    """The `.env` that was read, None where there is none."""
    warnings: tuple[str, ...]
    """What the user should hear once at start, on stderr."""


def checkout_root() -> Path | None:
    """The root of the source checkout this package runs from, None when it is installed elsewhere."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "pyproject.toml").is_file() and (root / "src" / "doc_rag").is_dir() else None


def find_env_file(environ: Mapping[str, str]) -> Path | None:
    """The `.env` to read: RAG_ENV_FILE, else the checkout's, else the working directory's."""
    named = environ.get("RAG_ENV_FILE")
    if named:
        path = Path(named).expanduser().absolute()
        if not path.exists():
            raise SettingsError(f"RAG_ENV_FILE={named} does not exist; name a file, or unset it.")
        return path
    root = checkout_root()
    for folder in ([root] if root else []) + [Path.cwd()]:
        if (folder / ".env").is_file():
            return folder / ".env"
    return None


def load_settings(
    environ: Mapping[str, str] | None = None, *, overrides: Mapping[str, str] | None = None
) -> Settings:
    """Read and validate every setting.

    `overrides` are values given on a command line, by variable name; they win over the environment,
    and their relative paths are relative to the working directory.

    Raises:
        SettingsError: one or more values are wrong; all of them are in the message.
    """
    environ = os.environ if environ is None else environ
    env_file = find_env_file(environ)
    try:
        written = dotenv_values(env_file, interpolate=False) if env_file else {}
    except OSError as error:
        raise SettingsError(
            f"{env_file} cannot be read: {error.strerror or error}. Make it readable for this user, or name "
            "another file in RAG_ENV_FILE."
        ) from None
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"{env_file} cannot be read: {error}. Save it as UTF-8 text, or remove it."
        ) from None
    folder = env_file.parent if env_file and env_file.is_file() else (checkout_root() or Path.cwd())
    here = Path.cwd()
    values: dict[str, Any] = {}
    problems: list[str] = []
    for variable in VARIABLES:
        raw, context = "", Context("the default", folder)
        for candidate, place in (
            (variable.default, context),
            (written.get(variable.name), Context(f"from {env_file}", folder)),
            (environ.get(variable.name), Context("from the environment", here)),
            ((overrides or {}).get(variable.name), Context("from the command line", here)),
        ):
            if candidate and candidate.strip():
                raw, context = candidate, place
        if not raw:
            values[variable.field] = None
            continue
        try:
            values[variable.field] = variable.parse(
                raw.strip() if variable.parse is not parse.text else raw, context
            )
        except ValueError as error:
            # An address may hold a password, also one that is refused.
            secret = variable.parse in (parse.secret, parse.database_url) or "@" in raw
            shown = "" if secret else f"={raw}"
            problems.append(f"{variable.name}{shown} ({context.origin}) {error}.")
            values[variable.field] = None
    if not problems:
        problems = _problems_across(values)
    if problems:
        raise SettingsError(problems)
    warnings = []
    if values["collection"] is None:
        warnings.append(
            f"RAG_COLLECTION is not set; using {DEFAULT_COLLECTION}. Set it, so that two projects do not share one."
        )
        values["collection"] = DEFAULT_COLLECTION
    if values["data_dir"] is None:
        values["data_dir"] = Path(_default_data_dir()).expanduser()
    warnings += _unknown_names(environ, written)
    values["env_file"] = env_file
    values["warnings"] = tuple(warnings)
    return Settings(**{field.name: values[field.name] for field in fields(Settings)})


def _unknown_names(environ: Mapping[str, str], written: Mapping[str, str | None]) -> list[str]:
    """A warning for every RAG_ name that is no setting: most likely one that is misspelt."""
    known = {variable.name for variable in VARIABLES} | OTHER_NAMES
    unknown = sorted(name for name in {*environ, *written} if name.startswith("RAG_") and name not in known)
    warnings = []
    for name in unknown:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else "."
        warnings.append(f"{name} is set, but no setting is called so{hint}")
    return warnings


def _problems_across(values: Mapping[str, Any]) -> list[str]:
    """The rules that hold between settings."""
    problems = []
    if values["chunk_overlap"] * 2 > values["chunk_size"]:
        problems.append(
            f"RAG_CHUNK_OVERLAP={values['chunk_overlap']} must be at most half of "
            f"RAG_CHUNK_SIZE={values['chunk_size']}; both are characters. Lower RAG_CHUNK_OVERLAP."
        )
    return problems
