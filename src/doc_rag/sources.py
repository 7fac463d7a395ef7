"""Find the documents below a folder, and read one of them whole.

Never leaves the root: symbolic links are resolved first, and one that leads out is named and left
alone. What could not be looked at is told apart from what is not there, so that a folder on a lost
disk never looks like a folder of deleted documents. Called by `ingest` and `freshness`.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path

from doc_rag.errors import DocRagError, ExtractionError
from doc_rag.records import Source, Walk
from doc_rag.skips import ending
from doc_rag.walker import GONE, MAX_NAME_BYTES, Walker, mtime_ns, said, too_large

__all__ = ["MAX_NAME_BYTES", "SourceUnreadable", "date_in_name", "is_below", "read_source", "walk"]


READ_BYTES = 1 << 24


class SourceUnreadable(ExtractionError):
    """The file is there but could not be read now; what is indexed of it stays until it can be."""


def date_in_name(name: str) -> date | None:
    """The last valid YYYY-MM-DD in the stem of a source's file name, or None."""
    stem = os.path.splitext(name.rsplit("/", 1)[-1])[0]
    for year, month, day in reversed(re.findall(r"(?<!\d)([0-9]{4})-([0-9]{2})-([0-9]{2})(?!\d)", stem)):
        try:
            return date(int(year), int(month), int(day))
        except ValueError:
            continue
    return None


def is_below(name: str, unreadable: Iterable[str]) -> bool:
    """Whether `name` is, or is below, one of `Walk.unreadable`: then it may not be counted as removed."""
    return any(name == top or name.startswith(top + "/") for top in unreadable)


def walk(
    root: Path,
    extensions: tuple[str, ...],
    *,
    max_file_bytes: int,
    stopped: Callable[[], bool] = lambda: False,
) -> Walk:
    """List the documents at `root`, a folder or a single file, in the order of their names.

    `extensions` are lower-case endings with their dot; a name's ending is compared without case.

    Raises:
        DocRagError: `root` does not exist, cannot be read, or is a file that is not indexed.
        Interrupted: `stopped()` became true.
    """
    try:
        resolved = root.resolve(strict=True)
        status = resolved.stat()
        if stat.S_ISDIR(status.st_mode):
            os.scandir(resolved).close()
    except (OSError, RuntimeError) as error:
        raise DocRagError(_root_problem(root, error)) from error
    if stat.S_ISDIR(status.st_mode):
        return Walker(root, resolved, extensions, max_file_bytes, stopped).walk()
    if not stat.S_ISREG(status.st_mode):
        raise DocRagError(
            f"{root} is neither a folder nor a regular file; set RAG_DOCS_DIR (or --docs) to one."
        )
    if ending(root.name) not in extensions:
        raise DocRagError(
            f"{root} has an ending that is not indexed ({' '.join(extensions)} are); see RAG_EXTENSIONS."
        )
    walker = Walker(root, resolved.parent, extensions, max_file_bytes)
    walker.take_file(str(resolved), os.fsencode(root.name), status)
    return walker.finish()


def read_source(source: Source, max_bytes: int) -> tuple[bytes, int, int]:
    """Read a file whole: its bytes, and the mtime_ns and size of exactly those bytes.

    A file that changes while it is read is read once more, so that half of one version is never
    joined to half of the next.

    Raises:
        SourceUnreadable: it cannot be opened or read, or keeps changing.
        ExtractionError: it is gone, is not a regular file any more, or is larger than `max_bytes`.
    """
    for _ in range(2):
        try:
            # O_NOFOLLOW: a link put here since the walk could lead out of the root. O_NONBLOCK: a FIFO
            # put here would wait for a writer for ever.
            descriptor = os.open(source.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise _not_read(error) from error
        try:
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                raise ExtractionError("is no longer a regular file")
            if before.st_size > max_bytes:
                raise ExtractionError(too_large(before.st_size, max_bytes))
            data = _read(descriptor, before.st_size)
            after = os.fstat(descriptor)
        except OSError as error:
            raise _not_read(error) from error
        finally:
            os.close(descriptor)
        same = (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)
        if same and len(data) == before.st_size:
            return data, mtime_ns(before), before.st_size
    raise SourceUnreadable("kept changing while it was being read; run again once it is finished")


def _read(descriptor: int, size: int) -> bytes:
    """The first `size` bytes, fewer where the file ends before."""
    data = os.read(descriptor, min(size, READ_BYTES))
    if len(data) == size:
        return data
    parts = [data]
    left = size - len(data)
    while left > 0 and (part := os.read(descriptor, min(left, READ_BYTES))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _not_read(error: OSError) -> ExtractionError:
    if error.errno in GONE:
        return ExtractionError("vanished before it could be read")
    if error.errno == errno.ELOOP:
        return ExtractionError("has become a symbolic link since the folder was walked")
    return SourceUnreadable(f"could not be read: {said(error)}")


def _root_problem(root: Path, error: OSError | RuntimeError) -> str:
    if isinstance(error, OSError) and error.errno in GONE:
        return (
            f"the documents folder {root} does not exist; set RAG_DOCS_DIR (or --docs) to a folder or a file."
        )
    reason = said(error) if isinstance(error, OSError) else str(error)
    return f"the documents folder {root} cannot be read: {reason}; see RAG_DOCS_DIR (or --docs)."
