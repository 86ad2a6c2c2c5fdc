"""How are the parts of a step drawn as a bar: in colours with their names in it, or in characters that differ?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from perfdoctor.report.words import wording
from perfdoctor.report.words.parts import Part, cells

if TYPE_CHECKING:
    from rich.console import Console

# Okabe and Ito's palette, which stays apart for colour-blind eyes; the legend names each part all the same.
COLOURS = {
    "compute": "#0072b2",
    "exposed_communication": "#e69f00",
    "exposed_copy": "#56b4e9",
    "input_wait": "#d55e00",
    "host_sync": "#cc79a7",
    "launch_bound": "#f0e442",
    "host_work": "#009e73",
    "allocator": "#8c6bb1",
    "storage": "#a6761d",
    "garbage_collection": "#66a61e",
    "compilation": "#7f7f00",
    "peer_wait": "#b35900",
    "profiler": "#5c5c5c",
    "queue_latency": "#bdbdbd",
}
GREY = "#8a8a8a"
# Without colour the parts differ by their characters: work is dark, idle is light.
SHADES = {"compute": "█", "exposed_communication": "▓", "exposed_copy": "▒"}
ASCII_SHADES = {"compute": "#", "exposed_communication": "%", "exposed_copy": "+"}
IDLE_SHADES = "░:-=~.^'\"o*xv"
#: Names for a bar's pieces and for legends that have no room for `wording.PART_LABELS`.
SHORT_LABELS = {
    "compute": "compute",
    "exposed_communication": "communication",
    "exposed_copy": "copies",
    "input_wait": "next batch",
    "host_sync": "blocking calls",
    "launch_bound": "slow launches",
    "host_work": "host code",
    "allocator": "allocation",
    "storage": "files",
    "garbage_collection": "collecting garbage",
    "compilation": "compiling",
    "peer_wait": "other ranks",
    "profiler": "the profiler",
    "queue_latency": "start of queue",
    "unknown": "not proven",
    "rest": "others",
}
_WORK = ("compute", "exposed_communication", "exposed_copy")

Shades = Mapping[str, tuple[str, str]]


def is_unicode(console: Console) -> bool:
    return console.encoding.lower().startswith("utf")


def has_colours(console: Console) -> bool:
    """Sixteen colours are too few: two parts would look the same."""
    return not console.no_color and console.color_system in ("256", "truecolor", "windows")


def shades(shown: Sequence[Part], console: Console) -> Shades:
    """Each part's character and style on this console."""
    unicode = is_unicode(console)
    work = SHADES if unicode else ASCII_SHADES
    if has_colours(console):
        return {part.key: (work["compute"], COLOURS.get(part.key, GREY)) for part in shown}
    idle = [part.key for part in shown if part.key not in work]
    light = IDLE_SHADES if unicode else IDLE_SHADES[1:]
    return {**{key: (shade, "") for key, shade in work.items()}, **{key: (light[i], "") for i, key in enumerate(idle)}}


def bar(shown: Sequence[Part], by_part: Shades, width: int) -> Text:
    drawn = Text()
    for part, number in zip(shown, cells(shown, width), strict=True):
        character, style = by_part[part.key]
        drawn.append(character * number, style)
    return drawn


def named_bar(shown: Sequence[Part], width: int) -> Text:
    """The bar as coloured ground, with each part's name and share in it where there is room."""
    drawn = Text()
    for part, number in zip(shown, cells(shown, width), strict=True):
        ground = COLOURS.get(part.key, GREY)
        drawn.append(_inscription(part, number).ljust(number), f"{_ink(ground)} on {ground}")
    return drawn


def short_label(part: Part) -> str:
    """`compute`, `idle: next batch`"""
    label = SHORT_LABELS.get(part.key, part.label)
    return label if part.key in _WORK else f"idle: {label}"


def _inscription(part: Part, room: int) -> str:
    share = wording.share(part.share)
    for text in (f" {SHORT_LABELS.get(part.key, part.label)} {share} ", f" {share} "):
        if len(text) <= room:
            return text
    return ""


def _ink(ground: str) -> str:
    """Black or white, whichever stands out more: WCAG's relative luminance, from which both contrasts follow."""
    channels = [int(ground[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#000000" if (luminance + 0.05) / 0.05 >= 1.05 / (luminance + 0.05) else "#ffffff"
