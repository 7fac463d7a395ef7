"""Mutated files through extraction and chunking: no crash, no hang, every offset exact.

python benchmarks/fuzz_extract.py --pdfs 1000 --texts 1000 --seconds 2 --seed 1

Each file is either read, with every promise of its chunks kept, or refused with a reason. Prints how
many of each there were, the slowest file and the reasons; a file that broke a promise is written to
--keep and the command exits 1.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from doc_rag.chunk import chunk_document  # noqa: E402 - found by the line above when run as a script.
from doc_rag.errors import ExtractionError  # noqa: E402
from doc_rag.extract import Extractor  # noqa: E402
from tests.support.chunk_checks import check  # noqa: E402
from tests.support.documents import Pdf, encrypted_pdf, mapped_pdf, raw_pdf  # noqa: E402

AWKWARD = ROOT.parent / "shared" / "awkward" / "files"
PDF_WORDS = [
    *(
        b"obj",
        b"endobj",
        b"stream",
        b"endstream",
        b"xref",
        b"trailer",
        b"startxref",
        b"%%EOF",
        b"<<",
        b">>",
        b"[",
    ),
    *(
        b"]",
        b"/Length 99999999",
        b"/Kids [1 0 R]",
        b"/Parent 3 0 R",
        b"/Filter /FlateDecode",
        b"/Filter [/ASCIIHexDecode",
    ),
    *(
        b"1 0 R",
        b"2 0 R",
        b"0 0 R",
        b"-1",
        b"4294967296",
        b"1e400",
        b"(((((((",
        b"<AB",
        b"/Count 1000000",
        b"/Prev 0",
    ),
    *(
        b"BT",
        b"ET",
        b"Tj",
        b"TJ",
        b"Tm",
        b"Tf",
        b"Do",
        b"q " * 50,
        b"Q " * 50,
        b"\\999",
        b"\x00",
        b"\xff\xfe",
    ),
]
TEXT_WORDS = [
    *(
        b"# ",
        b"\n",
        b"\n\n",
        b"```",
        b"~~~",
        b"---\n",
        b"+++\n",
        b"- ",
        b"> ",
        b"| ",
        b"[a]: ",
        b"<!--",
        b"\xff\xfe",
    ),
    *(
        b"\xef\xbb\xbf",
        b"\x00",
        b"\r",
        b"\t",
        b"&amp;",
        b"title: ",
        b"[" * 40,
        b"*" * 40,
        b"\xed\xa0\x80",
        b"\xe3\x81\x82",
    ),
    *(b"word ", b"Sentence. ", b"\xcc\x81", b"\xe2\x80\xa8", b"\xc2\x85", b"=====\n"),
]
MARGIN_SECONDS = 20
"""What a file may take beyond its reader's time limit: starting the next reader, on a busy machine."""


@dataclass
class Tally:
    """What became of the files so far."""

    read: int = 0
    chunks: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, str] = (0.0, "")
    broken: list[str] = field(default_factory=list)


def seeds_of_pdfs() -> list[bytes]:
    """Ordinary PDFs to start from: generated ones, and the shared awkward ones where they are."""
    pdf = Pdf(header="Header", numbered=True, title="Title")
    for number in range(3):
        pdf.add_page()
        pdf.heading(f"{number} Heading")
        pdf.paragraph("A paragraph that is long enough to be set in lines. " * 8)
    made = [
        pdf.data(),
        encrypted_pdf("words", ""),
        raw_pdf(b"BT /F1 12 Tf 50 700 Td (words) Tj ET", compress=True),
    ]
    made.append(mapped_pdf({code: chr(code) for code in range(32, 127)}, b"mapped words"))
    return made + [
        path.read_bytes() for path in sorted(AWKWARD.glob("*.pdf")) if path.stat().st_size < 40_000
    ]


def mutate(data: bytes, words: list[bytes], rng: random.Random) -> bytes:
    """A few random damages: bytes changed, pieces cut, doubled or moved, telling words put in, the end lost."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8, 30))):
        at, length = rng.randrange(len(changed) + 1), min(rng.choice((1, 4, 40, 400)), len(changed))
        damage = rng.randrange(7)
        if damage == 0 and changed:
            changed[at % len(changed)] = rng.randrange(256)
        elif damage == 1:
            del changed[at : at + length]
        elif damage == 2:
            changed[at:at] = changed[at : at + length]
        elif damage in (3, 4):
            changed[at:at] = rng.choice(words)
        elif damage == 5:
            changed[at : at + 1] = re.sub(rb"\d", b"%d" % rng.randrange(10), bytes(changed[at : at + 1]))
        elif rng.random() < 0.2:
            del changed[at:]
    return bytes(changed)


def pdfs(count: int, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Mutated PDFs; a third of them sound files around a mutated content stream."""
    seeds = seeds_of_pdfs()
    content = (
        b"q BT /F1 12 Tf 1 0 0 1 50 700 Tm (words) Tj 0 -14 Td [(more) -250 (words)] TJ T* (end) ' ET Q\n" * 4
    )
    for number in range(count):
        if number % 3 == 0:
            yield f"{number}.pdf", raw_pdf(mutate(content, PDF_WORDS, rng), compress=bool(number % 2))
        else:
            yield f"{number}.pdf", mutate(rng.choice(seeds), PDF_WORDS, rng)


def texts(count: int, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Random bytes, random markup, and mutated text, named .md and .txt."""
    seed = (
        "# Title\n\nA paragraph of words. "
        + "Größe “naïve” 日本語。 " * 20
        + "\n\n- a\n- b\n\n```\ncode\n```\n"
    ).encode()
    makers: list[Callable[[], bytes]] = [
        lambda: rng.randbytes(rng.randrange(3_000)),
        lambda: b"".join(rng.choice(TEXT_WORDS) for _ in range(rng.randrange(600))),
        lambda: mutate(seed, TEXT_WORDS, rng),
        lambda: mutate(
            seed.decode().encode(rng.choice(("utf-16", "utf-16-le", "utf-32", "utf-8"))), TEXT_WORDS, rng
        ),
    ]
    for number in range(count):
        yield f"{number}{rng.choice(('.md', '.txt'))}", rng.choice(makers)()


def run(
    files: Iterator[tuple[str, bytes]], extractor: Extractor, seconds: float, tally: Tally, keep: Path | None
) -> None:
    """Read and chunk each file, and note what became of it."""
    for name, data in files:
        start = time.monotonic()
        try:
            extracted = extractor.extract(name, data)
            chunks = chunk_document(extracted, size=300, overlap=60, max_tokens=80, count_tokens=len)
            check(extracted, chunks, 300)
            extracted.text.encode("utf-8")
            assert "\0" not in extracted.text + (extracted.title or "")
            tally.read += 1
            tally.chunks += len(chunks)
        except ExtractionError as error:
            tally.refused[re.sub(r"\d+", "#", str(error))[:70]] += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for.
            tally.broken.append(f"{name}: {type(error).__name__}: {error}")
            if keep:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / name).write_bytes(data)
        took = time.monotonic() - start
        tally.slowest = max(tally.slowest, (took, name))
        if took > seconds + MARGIN_SECONDS:
            tally.broken.append(f"{name}: took {took:.1f} s under a limit of {seconds:g} s")


def fuzz(pdf_count: int, text_count: int, seconds: float, seed: int, keep: Path | None = None) -> Tally:
    """Run both kinds; the same seed gives the same files."""
    tally = Tally()
    with Extractor(pdf_timeout_seconds=seconds, pdf_memory_mb=512) as extractor:
        for files in (pdfs(pdf_count, random.Random(seed)), texts(text_count, random.Random(seed))):
            run(files, extractor, seconds, tally, keep)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pdfs", type=int, default=1000)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=2.0, help="time limit for one PDF")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for files that broke a promise")
    arguments = parser.parse_args()
    start = time.monotonic()
    tally = fuzz(arguments.pdfs, arguments.texts, arguments.seconds, arguments.seed, arguments.keep)
    print(
        f"{tally.read} read into {tally.chunks} chunks, {tally.refused.total()} refused, {len(tally.broken)} broken"
    )
    print(f"{time.monotonic() - start:.0f} s; slowest {tally.slowest[1]} with {tally.slowest[0]:.2f} s")
    for reason, count in tally.refused.most_common(15):
        print(f"{count:6} {reason}")
    for broken in tally.broken:
        print(f"BROKEN {broken}")
    return 1 if tally.broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
