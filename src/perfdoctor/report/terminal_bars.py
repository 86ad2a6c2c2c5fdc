"""How are the parts of a step drawn as a bar: in colours with their names, or in different characters?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from perfdoctor.report.part_colours import ink
from perfdoctor.report.words import wording
from perfdoctor.report.words.parts import PartShare, cells
from perfdoctor.vocabulary.parts import SHOWN_PARTS, WORK_PARTS

if TYPE_CHECKING:
    from rich.console import Console

Shades = Mapping[str, tuple[str, str]]


def is_unicode(console: Console) -> bool:
    return console.encoding.lower().startswith("utf")


def has_colours(console: Console) -> bool:
    """Does the console have enough colours? With sixteen, two parts would look the same."""
    return not console.no_color and console.color_system in ("256", "truecolor", "windows")


def shades(console: Console) -> Shades:
    """Each part's character and style on this console."""
    glyphs = {key: row.glyph if is_unicode(console) else row.ascii_glyph for key, row in SHOWN_PARTS.items()}
    if has_colours(console):
        return {key: (glyphs["compute"], row.colour) for key, row in SHOWN_PARTS.items()}
    return {key: (glyph, "") for key, glyph in glyphs.items()}


def bar(shown: Sequence[PartShare], by_part: Shades, width: int) -> Text:
    drawn = Text()
    for part, number in zip(shown, cells(shown, width), strict=True):
        character, style = by_part[part.key]
        drawn.append(character * number, style)
    return drawn


def named_bar(shown: Sequence[PartShare], width: int) -> Text:
    """The bar as coloured background, with each part's name and share in it where there is room."""
    drawn = Text()
    for part, number in zip(shown, cells(shown, width), strict=True):
        ground = SHOWN_PARTS[part.key].colour
        drawn.append(_inscription(part, number).ljust(number), f"{ink(ground)} on {ground}")
    return drawn


def short_label(part: PartShare) -> str:
    """`compute`, `idle: input wait`"""
    label = SHOWN_PARTS[part.key].short
    return label if part.key in WORK_PARTS else f"idle: {label}"


def _inscription(part: PartShare, room: int) -> str:
    share = wording.share(part.share)
    for text in (f" {SHOWN_PARTS[part.key].short} {share} ", f" {share} "):
        if len(text) <= room:
            return text
    return ""
