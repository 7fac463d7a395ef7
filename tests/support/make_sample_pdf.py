"""Writes docs/equipment/mirror-care-manual.pdf, the PDF of the sample corpus. Run once, its output is committed.

python -m tests.support.make_sample_pdf
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from fpdf import FPDF
from fpdf.enums import XPos, YPos

OUTPUT = Path(__file__).resolve().parents[2] / "docs" / "equipment" / "mirror-care-manual.pdf"
TITLE = "Mirror care manual"
WRITTEN = datetime(2026, 1, 17, 12, 0, tzinfo=UTC)

PAGES: tuple[tuple[tuple[str, tuple[str, ...]], ...], ...] = (
    (
        (
            "1  What this manual is about",
            (
                "The primary mirror of the Fennwick Hill telescope is 61 centimetres wide and weighs 48 "
                "kilograms. Its reflecting layer is a tenth of a thousandth of a millimetre thick. Nearly all "
                "damage ever done to it was done by people who wanted to clean it.",
                "A dusty mirror loses a few per cent of the light. A scratched one scatters it for ever. When in "
                "doubt, leave the dust where it is and put the cover on.",
            ),
        ),
        (
            "2  Who may do what",
            (
                "Every key holder may blow off dust (section 3). Washing (section 4) needs two members who "
                "have done it before under guidance. The mirror cell is opened by the equipment warden alone.",
            ),
        ),
    ),
    (
        (
            "3  Blowing off dust",
            (
                "Once a month, with the telescope pointing ten degrees below the horizontal so that what comes "
                "loose falls out of the tube. Use the rubber bulb from the drawer marked MIRROR. Cans of "
                "compressed gas are forbidden: their propellant leaves spots that no washing removes.",
                "Hold the bulb at a slant and work from the top edge to the bottom edge. Do not touch the "
                "surface with the nozzle, a brush or a cloth. What does not come off by air stays on.",
            ),
        ),
        (
            "3.1  Insects",
            (
                "Dead insects are lifted off with a strip of the blue tape folded over a match, sticky side out, "
                "without pressing. Note the place in the log book, since their traces are acid.",
            ),
        ),
    ),
    (
        (
            "4  Washing the primary mirror",
            (
                "The mirror is washed once every eighteen months, or sooner when the reflectivity meter shows "
                "less than 82 per cent. Choose a day above 15 degrees; cold glass and warm water crack.",
                "Rinse with ten litres of distilled water to float off the grit. Then lay cotton wool soaked in "
                "distilled water with four drops of neutral soap per litre on the surface and draw it across by "
                "its own weight, one ball a stroke, each thrown away after use. Rinse again with fifteen litres. "
                "Dry with the fans, never with a cloth.",
            ),
        ),
        (
            "4.1  What you need",
            (
                "Thirty litres of distilled water, two rolls of sterile cotton wool, the neutral soap from the "
                "cupboard, nitrile gloves, and the plastic apron without buttons. Take off rings and watches.",
            ),
        ),
    ),
    (
        (
            "5  Realuminising",
            (
                "Every six years the old layer is stripped and a new one evaporated on, by a workshop with a "
                "vacuum chamber. The mirror travels in its green crate, lying on its back, and is insured for "
                "35,000 euros on the way. Order the transport eight weeks ahead.",
            ),
        ),
        (
            "6  Records",
            (
                "Write date, names, reflectivity before and after, and anything unusual on the card in the "
                "crate's lid. Cards are kept for the life of the mirror.",
            ),
        ),
    ),
)


class Manual(FPDF):
    """A4 pages with a running head and a page number, as such manuals have."""

    def header(self) -> None:
        self.set_font("Helvetica", "I", 9)
        self.cell(0, 8, "Fennwick Hill Observatory - " + TITLE, new_x=XPos.LMARGIN, new_y=YPos.NEXT)
        self.ln(4)

    def footer(self) -> None:
        self.set_y(-15)
        self.set_font("Helvetica", "I", 9)
        self.cell(0, 8, f"Page {self.page_no()} of {len(PAGES)}", align="C")


def build() -> bytes:
    """The manual; the same bytes every time with one version of fpdf2."""
    pdf = Manual()
    pdf.set_title(TITLE)
    pdf.set_author("Fennwick Hill Observatory")
    pdf.set_creation_date(WRITTEN)
    pdf.set_margin(25)
    for number, page in enumerate(PAGES):
        pdf.add_page()
        if number == 0:
            pdf.set_font("Helvetica", "B", 20)
            pdf.cell(0, 14, TITLE, new_x=XPos.LMARGIN, new_y=YPos.NEXT)
            pdf.ln(4)
        for heading, paragraphs in page:
            pdf.set_font("Helvetica", "B", 14)
            pdf.cell(0, 10, heading, new_x=XPos.LMARGIN, new_y=YPos.NEXT)
            pdf.set_font("Helvetica", size=11)
            for paragraph in paragraphs:
                pdf.multi_cell(0, 6, paragraph, align="L", new_x=XPos.LMARGIN, new_y=YPos.NEXT)
                pdf.ln(3)
            pdf.ln(2)
    return bytes(pdf.output())


if __name__ == "__main__":
    OUTPUT.write_bytes(build())
