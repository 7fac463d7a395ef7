"""One walk of a documents folder: real folders first, then what symbolic links lead to. Called by `sources`."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from doc_rag.errors import Interrupted
from doc_rag.ignore_rules import IgnoreRules, ignored_by, read_ignore_rules
from doc_rag.records import Source, Walk
from doc_rag.skips import SkipList, clean, ending, nfc_name, shown

MAX_NAME_BYTES = 1024
"""Longest `Source.name`, in bytes of UTF-8: an index row of Postgres has a limit."""

VENDOR_FOLDERS = frozenset({"node_modules", "bower_components", "site-packages", "venv", "__pycache__"})
"""Folders of other people's files, without a leading dot (those with one are hidden anyway). A Python
environment of another name is known by its pyvenv.cfg: a folder "env" may well hold documents."""

MAX_MTIME_NS = 2**63 - 1
GONE = (errno.ENOENT, errno.ENOTDIR)
"""What a file that was deleted a moment ago answers."""


def said(error: OSError) -> str:
    return error.strerror or str(error)


def too_large(size_bytes: int, max_bytes: int) -> str:
    return (
        f"is {size_bytes / 1_048_576:,.1f} MB large, more than the {max_bytes / 1_048_576:,.0f} MB"
        " of RAG_MAX_FILE_MB"
    )


def mtime_ns(status: os.stat_result) -> int:
    """When the file was last changed, in nanoseconds, as far as a bigint goes (1677 to 2262)."""
    return min(max(status.st_mtime_ns, -MAX_MTIME_NS), MAX_MTIME_NS)


def kind_of(mode: int) -> str:
    """What a file that is neither regular nor a folder is, in words."""
    tests = {
        stat.S_ISFIFO: "a FIFO",
        stat.S_ISSOCK: "a socket",
        stat.S_ISBLK: "a block device",
        stat.S_ISCHR: "a character device",
    }
    return next((words for test, words in tests.items() if test(mode)), "a special file")


@dataclass(frozen=True, slots=True)
class _Place:
    """A folder to be listed, or a link to be followed: where it is, its raw name, the rules that hold there."""

    path: str
    raw: bytes
    rules: tuple[IgnoreRules, ...]


@dataclass(slots=True)
class Walker:
    """Gathers a `Walk`. `resolved` is the real path that everything must be below."""

    root: Path
    resolved: Path
    extensions: tuple[str, ...]
    max_file_bytes: int
    stopped: Callable[[], bool] = lambda: False
    """Looked at between folders; true ends the walk by `Interrupted`."""
    skips: SkipList = field(default_factory=SkipList)
    _sources: dict[str, Source] = field(default_factory=dict)
    _unreadable: set[str] = field(default_factory=set)
    _folders: list[_Place] = field(default_factory=list)
    _links: list[_Place] = field(default_factory=list)
    _listed: dict[str, str] = field(default_factory=dict)
    """Real path of every folder listed, and the name it was listed under: circles end here."""
    _linked: dict[str, str] = field(default_factory=dict)
    """Real path of every file taken through a link, and the name it was taken under."""

    def walk(self) -> Walk:
        """Walk the whole folder."""
        self._folders.append(_Place(str(self.resolved), b"", ()))
        self._list_all()
        # Following a link may uncover more of them, so they are taken until none is left.
        while self._links:
            found = sorted(self._links, key=lambda link: link.raw)
            self._links = []
            for link in found:
                self._follow(link)
                self._list_all()
        return self.finish()

    def finish(self) -> Walk:
        """What was gathered so far, in order."""
        return Walk(
            root=self.root,
            sources=tuple(self._sources[name] for name in sorted(self._sources)),
            skips=self.skips.finish(),
            unreadable=tuple(sorted(self._unreadable)),
        )

    def take_file(self, path: str, raw: bytes, status: os.stat_result) -> None:
        """Add one regular file, unless its name, size or access forbids it."""
        name = self._name(raw)
        if name is None:
            return
        if status.st_size > self.max_file_bytes:
            self.skips.add(name, too_large(status.st_size, self.max_file_bytes))
            return
        if not os.access(path, os.R_OK):
            self._not_readable(raw, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
            return
        source = Source(Path(path), name, raw, status.st_size, mtime_ns(status))
        other = self._sources.get(name)
        if other is None:
            self._sources[name] = source
            return
        # Two spellings of one name (NFC and NFD). The one that already is NFC wins, so that the
        # answer does not depend on the order in which the file system lists them.
        spelt = name.encode()
        winner, loser = sorted((other, source), key=lambda each: (each.raw_path != spelt, each.raw_path))
        self._sources[name] = winner
        # Its own source name would be the winner's, so the loser is shown in escapes.
        self.skips.add(
            ascii(os.fsdecode(loser.raw_path))[1:-1],
            f"its name differs from {os.fsdecode(winner.raw_path)!a} only in Unicode form; rename it",
        )

    def _list_all(self) -> None:
        while self._folders:
            if self.stopped():
                raise Interrupted("Stopped while looking through the documents folder.")
            self._list(self._folders.pop())

    def _list(self, folder: _Place) -> None:
        name = self._name(folder.raw) if folder.raw else ""
        if name is None:
            return
        try:
            with os.scandir(folder.path) as listing:
                entries = sorted(listing, key=lambda entry: os.fsencode(entry.name))
        except OSError as error:
            self._not_readable(folder.raw, error)
            return
        self._listed.setdefault(folder.path, name)
        if any(entry.name == "pyvenv.cfg" for entry in entries):
            self.skips.add_bounded(shown(folder.raw) + "/", "vendor folder")
            return
        rules, problems = read_ignore_rules(folder.path, name)
        for file_name, problem in problems:
            self.skips.add_bounded(file_name, "ignore files with a problem", problem)
        stack = (*folder.rules, rules) if rules else folder.rules
        for entry in entries:
            raw = os.fsencode(entry.name)
            self._take_entry(entry, folder.raw + b"/" + raw if folder.raw else raw, stack)

    def _take_entry(self, entry: os.DirEntry[str], raw: bytes, rules: tuple[IgnoreRules, ...]) -> None:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError as error:
            self._not_readable(raw, error)
            return
        mode = status.st_mode
        if self._is_left_out(entry.name, raw, stat.S_ISDIR(mode), rules):
            return
        if stat.S_ISLNK(mode):
            self._links.append(_Place(entry.path, raw, rules))
        elif stat.S_ISDIR(mode):
            self._folders.append(_Place(entry.path, raw, rules))
        elif not stat.S_ISREG(mode):
            self.skips.add_bounded(shown(raw), f"is {kind_of(mode)}, not a regular file")
        elif ending(entry.name) in self.extensions:
            self.take_file(entry.path, raw, status)
        else:
            self.skips.count_ending(entry.name)

    def _is_left_out(
        self, entry_name: str, raw: bytes, is_folder: bool, rules: tuple[IgnoreRules, ...]
    ) -> bool:
        if entry_name.startswith("."):
            kind = "hidden folder" if is_folder else "hidden file"
        elif is_folder and entry_name in VENDOR_FOLDERS:
            kind = "vendor folder"
        elif rules and (origin := ignored_by(rules, nfc_name(raw), is_folder)):
            kind = f"ignored by {clean(origin)}"
        else:
            return False
        # Files that would not be indexed anyway (.DS_Store, .gitignore, *.log) are left out in silence.
        if is_folder or ending(entry_name) in self.extensions:
            self.skips.add_bounded(shown(raw) + ("/" if is_folder else ""), kind)
        return True

    def _follow(self, link: _Place) -> None:
        """Take what a symbolic link leads to, if that is in the root and is not taken already."""
        try:
            target = Path(link.path).resolve(strict=True)
            status = target.stat()
        except (OSError, RuntimeError) as error:
            # Up to Python 3.12 a circle of links is a RuntimeError.
            code = error.errno if isinstance(error, OSError) else errno.ELOOP
            if code == errno.ELOOP:
                self.skips.add_bounded(shown(link.raw), "a symbolic link that leads in a circle")
            elif code in GONE:
                self.skips.add_bounded(shown(link.raw), "a symbolic link to nothing")
            elif isinstance(error, OSError):
                self._not_readable(link.raw, error)
            return
        if not target.is_relative_to(self.resolved):
            self.skips.add_bounded(
                shown(link.raw), "a symbolic link that leads out of the documents folder; it is not followed"
            )
        elif stat.S_ISDIR(status.st_mode):
            self._follow_to_folder(link, target)
        elif ending(os.fsdecode(link.raw)) not in self.extensions:
            self.skips.count_ending(os.fsdecode(link.raw))
        elif not stat.S_ISREG(status.st_mode):
            self.skips.add_bounded(shown(link.raw), f"a symbolic link to {kind_of(status.st_mode)}")
        else:
            self._follow_to_file(link, target, status)

    def _follow_to_folder(self, link: _Place, target: Path) -> None:
        known = self._listed.get(str(target))
        if known is None:
            self._folders.append(_Place(str(target), link.raw, link.rules))
            return
        where = clean(known) or "the documents folder itself"
        self.skips.add_bounded(
            shown(link.raw),
            "a symbolic link to a folder of the walk",
            f"a symbolic link to {where}, walked there",
        )

    def _follow_to_file(self, link: _Place, target: Path, status: os.stat_result) -> None:
        real_name = nfc_name(os.fsencode(target.relative_to(self.resolved)))
        source = self._sources.get(real_name)
        known = real_name if source is not None and source.path == target else self._linked.get(str(target))
        if known is None:
            self._linked[str(target)] = nfc_name(link.raw)
            self.take_file(str(target), link.raw, status)
            return
        self.skips.add_bounded(
            shown(link.raw),
            "a symbolic link to an indexed file",
            f"a symbolic link to {clean(known)}, indexed under that name",
        )

    def _name(self, raw: bytes) -> str | None:
        """The key of a file or folder, or None (and a skip) where its name cannot be one."""
        name = nfc_name(raw)
        try:
            length = len(name.encode())
        except UnicodeEncodeError:
            self.skips.add(shown(raw), "its name is not valid UTF-8; rename it")
            return None
        if length > MAX_NAME_BYTES:
            self.skips.add(
                f"{name[:200]}…{name[-50:]}",
                f"its path is {length:,} bytes long; at most {MAX_NAME_BYTES:,} are indexed",
            )
            return None
        return name

    def _not_readable(self, raw: bytes, error: OSError) -> None:
        if error.errno in GONE:
            return  # Deleted since it was listed: it simply is not there any more.
        self._unreadable.add(shown(raw))
        self.skips.add(shown(raw), f"could not be read: {said(error)}; what is indexed of it stays")
