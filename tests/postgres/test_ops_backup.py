"""A backup goes into an empty database whole, is queried there, and never lands on anything else."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from doc_rag.ops import backup
from doc_rag.service import KnowledgeBase
from doc_rag.settings import load_settings
from tests.conftest import MakeSettings
from tests.support.postgres import create_database, drop_database

QUESTION = "When does the ferry leave?"


@pytest.fixture
def full(make_settings: MakeSettings, tmp_path: Path) -> Iterator[KnowledgeBase]:
    """A knowledge base of two small documents."""
    settings = make_settings()
    (tmp_path / "docs" / "ferry.md").write_text(
        "# Timetable\n\nThe ferry leaves at noon, on Sundays at one.\n"
    )
    (tmp_path / "docs" / "kiln.md").write_text("# Kiln\n\nThe kiln is fired every second week.\n")
    with KnowledgeBase(settings) as kb:
        kb.reindex_docs()
        yield kb


@pytest.fixture
def elsewhere(postgres_server: str) -> Iterator[str]:
    """An empty database that has never seen us."""
    url = create_database(postgres_server)
    yield url
    drop_database(postgres_server, url)


def settings_environ(full: KnowledgeBase, url: str) -> dict[str, str]:
    return {
        "RAG_DATABASE_URL": url,
        "RAG_DOCS_DIR": str(full.settings.docs_dir),
        "RAG_COLLECTION": full.settings.collection,
        "RAG_EMBED_PROVIDER": "local",
        "RAG_ENV_FILE": os.devnull,
    }


def database_url(full: KnowledgeBase) -> str:
    assert full.settings.database_url is not None
    return full.settings.database_url.reveal()


def use(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


def test_a_restored_index_answers_as_the_old_one_did_and_embeds_nothing_again(
    full: KnowledgeBase,
    elsewhere: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "index.dump"
    use(monkeypatch, settings_environ(full, database_url(full)))
    assert backup.main(["dump", str(file)]) == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    use(monkeypatch, settings_environ(full, elsewhere))
    assert backup.main(["restore", str(file)]) == 0, capsys.readouterr().err
    said = capsys.readouterr()
    assert "Restored" in said.out
    with KnowledgeBase(load_settings(settings_environ(full, elsewhere))) as restored:
        answer = restored.query_docs(QUESTION)
        assert [passage.source for passage in answer.passages] == [
            passage.source for passage in full.query_docs(QUESTION).passages
        ]
        assert answer.passages[0].source == "ferry.md"
        again = restored.reindex_docs()
        assert (again.unchanged, again.texts_embedded) == (2, 0)
        with restored.database.connection() as connection:
            indexes = connection.execute(
                "select count(*) from pg_indexes where indexname like 'doc_chunks_g%_hnsw'"
            ).fetchone()
        assert indexes == (1,)


def test_a_database_with_an_index_in_it_is_not_restored_into(
    full: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "index.dump"
    use(monkeypatch, settings_environ(full, database_url(full)))
    assert backup.main(["dump", str(file)]) == 0
    assert backup.main(["restore", str(file)]) == 1
    assert "is not empty: it has the collection test" in capsys.readouterr().err
    assert full.query_docs(QUESTION).passages


def test_a_database_of_somebody_else_is_not_restored_into(
    full: KnowledgeBase,
    elsewhere: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "index.dump"
    use(monkeypatch, settings_environ(full, database_url(full)))
    assert backup.main(["dump", str(file)]) == 0
    use(monkeypatch, settings_environ(full, elsewhere))
    with KnowledgeBase(load_settings(settings_environ(full, elsewhere))) as other:
        with other.database.connection() as connection:
            connection.execute("create table invoices (id int)")
        assert backup.main(["restore", str(file)]) == 1
        assert other.list_collections() == ()
    assert "a table invoices" in capsys.readouterr().err


def test_an_existing_file_is_never_written_over(
    full: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "index.dump"
    file.write_text("precious")
    use(monkeypatch, settings_environ(full, database_url(full)))
    assert backup.main(["dump", str(file)]) == 1
    assert file.read_text() == "precious"
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 a zip", b"PGDMP and then nothing that pg_restore reads"]
)
def test_a_file_that_is_no_backup_changes_nothing(
    full: KnowledgeBase,
    elsewhere: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: bytes,
) -> None:
    file = tmp_path / "index.dump"
    file.write_bytes(content)
    use(monkeypatch, settings_environ(full, elsewhere))
    assert backup.main(["restore", str(file)]) == 1
    assert "restore did not happen" in capsys.readouterr().err
    with KnowledgeBase(load_settings(settings_environ(full, elsewhere))) as kb:
        assert kb.list_collections() == ()


def test_a_failed_dump_leaves_no_file(
    full: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    use(monkeypatch, settings_environ(full, database_url(full)))
    monkeypatch.setattr(
        backup.Programs, "command", lambda *_: ["sh", "-c", "echo half; echo broken >&2; exit 3"]
    )
    assert backup.main(["dump", str(folder / "index.dump")]) == 1
    assert os.listdir(folder) == []
    assert "broken" in capsys.readouterr().err


def test_without_programs_as_new_as_the_server_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backup, "_major", lambda _: 15)
    with pytest.raises(backup.BackupFailed, match=r"Postgres 99.*postgresql-client-99"):
        backup.find_programs(99, embedded=False, local=False)
