"""Documents that carry their version, the history of what each revision held, and the check of an answer against it.

A document's text is a function of its name and version, so that a passage tells which version it is from, and every
character of it can be checked. The history is written by a trigger in the transaction of the write itself:
whoever can read a revision can read what it held.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg

_STEMS = (
    *(
        "anchor",
        "barley",
        "candle",
        "drum",
        "ember",
        "ferry",
        "granite",
        "harbour",
        "island",
        "juniper",
        "kettle",
    ),
    *(
        "lantern",
        "marble",
        "needle",
        "orchard",
        "pebble",
        "quarry",
        "ribbon",
        "saddle",
        "timber",
        "umber",
        "velvet",
    ),
    *("willow", "yarrow", "zinc", "bridge", "copper", "dynamo", "engine", "filter", "gauge", "hammer"),
)
WORDS = [f"{stem}{number}" for stem in _STEMS for number in range(12)]
"""Enough of them that a question's words are in some chunks and not in most."""
_VERSION = re.compile(r"\bversion (\d+)\b")

HISTORY = """
create table if not exists load_history (
    revision bigint primary key, collection text not null, versions jsonb not null
);
create or replace function load_note() returns trigger language plpgsql as $$
begin
    insert into load_history
    select new.revision, new.name,
           coalesce(jsonb_object_agg(d.source, substring(t.text from '\\mversion (\\d+)')::int), '{}')
      from documents d join document_texts t on t.document_id = d.id
     where d.generation_id = new.live_generation_id
    on conflict (revision) do update set versions = excluded.versions;
    return null;
end $$;
create or replace trigger load_note after update of revision on collections
    for each row execute function load_note();
update collections set revision = nextval('revision_seq');
"""

Versions = Mapping[str, int]
Held = tuple[str, Versions]
"""A collection and the version of each document that it holds."""


def text_of(source: str, version: int) -> str:
    """The whole text of one version: a few sections of paragraphs, their number and length as the version has it."""
    chance = random.Random(f"{source} {version}")
    lines = [f"# {source} in version {version}"]
    for part in range(chance.randint(2, 4)):
        lines.append(f"## Part {part}")
        for _ in range(chance.randint(1, 3)):
            words = " ".join(chance.choices(WORDS, k=chance.randint(15, 45)))
            lines.append(f"In version {version} of {source}: {words}.")
    return "\n\n".join(lines) + "\n"


def question(chance: random.Random) -> str:
    """A question that some documents answer better than others."""
    return " ".join(chance.sample(WORDS, 4))


class Corpus:
    """A folder of such documents, rewritten while it is being indexed."""

    def __init__(self, folder: Path, prefix: str, documents: int) -> None:
        self.folder = folder
        self.names = [f"{prefix}-{number:03}.md" for number in range(documents)]
        self._version = dict.fromkeys(self.names, 0)
        folder.mkdir(parents=True, exist_ok=True)
        for name in self.names:
            self.edit(name)

    def edit(self, name: str) -> None:
        """The next version of a document; one that was taken away comes back with it."""
        self._version[name] += 1
        # Beside the target and moved there, as editors do: a reader never sees half of it.
        half = self.folder / f".{name}.part"
        half.write_text(text_of(name, self._version[name]), encoding="utf-8")
        half.replace(self.folder / name)

    def edit_some(self, chance: random.Random, most: int) -> None:
        """Edit some documents, and take one of ten away until its next edit."""
        for name in chance.sample(self.names, chance.randint(1, most)):
            if chance.random() < 0.1:
                (self.folder / name).unlink(missing_ok=True)
            else:
                self.edit(name)


def read_history(url: str) -> dict[int, Held]:
    """What every committed revision held."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("select revision, collection, versions from load_history").fetchall()
    return {revision: (collection, versions) for revision, collection, versions in rows}


def problems_of(
    tool: str, answer: Mapping[str, Any], before: Mapping[str, int], history: Mapping[int, Held]
) -> list[str]:
    """What is stale or mixed in an answer; `before` is what was committed when it was asked."""
    if tool == "list_collections":
        return _too_old({each["name"]: each["revision"] for each in answer["collections"]}, before)
    if tool != "query_docs":
        return []
    revisions = answer["revisions"]
    found = _too_old(revisions, before)
    for collection, revision in revisions.items():
        if history.get(revision, ("", {}))[0] != collection:
            found.append(f"{collection}: revision {revision} was never committed")
    if found:
        return found
    held = {collection: history[revision][1] for collection, revision in revisions.items()}
    problems = (_mismatch(passage, held[passage["collection"]]) for passage in answer["passages"])
    return [f"at {revisions}: {problem}" for problem in problems if problem]


def _too_old(revisions: Mapping[str, int], before: Mapping[str, int]) -> list[str]:
    return [
        f"{collection}: answered at revision {revision}, but {before[collection]} was committed when it was asked"
        for collection, revision in revisions.items()
        if revision < before.get(collection, 0)
    ]


def _mismatch(passage: Mapping[str, Any], held: Versions) -> str | None:
    """How a passage differs from what the revision held of its document."""
    source, content = passage["source"], passage["content"]
    seen = sorted({int(number) for number in _VERSION.findall(content)})
    version = held.get(source)
    if version is None:
        return f"{source} is not in that revision, the passage is of version {seen}"
    if any(number != version for number in seen):
        return f"{source} is at version {version}, the passage is of version {seen}"
    if text_of(source, version)[passage["char_start"] : passage["char_end"]] != content:
        return f"{source}: the passage is not what version {version} says from {passage['char_start']} on"
    return None
