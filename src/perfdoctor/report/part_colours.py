"""Which colours do parts of a step and kinds of memory have on a page, and which text is readable on them?"""

from __future__ import annotations

from collections.abc import Iterator

from perfdoctor.vocabulary.kinds import MEMORY_KINDS
from perfdoctor.vocabulary.parts import SHOWN_PARTS


def style_sheet() -> str:
    """A variable for each part's colour, `--input-wait`, and for text on it, `--on-input-wait`; light and dark.

    `p-input_wait` is the class of its segment in a bar, `k-input_wait` that of its series in a chart.
    """
    light = " ".join(_variables({name: part.colour for name, part in SHOWN_PARTS.items()}))
    dark = " ".join(_variables({name: part.dark for name, part in SHOWN_PARTS.items()}))
    lines = [f":root {{ {light} }}", f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"]
    for name in SHOWN_PARTS:
        variable = _variable(name)
        lines.append(f".p-{name} {{ background: var(--{variable}); color: var(--on-{variable}); }}")
        lines.append(f".k-{name} {{ --k: var(--{variable}); }}")
    # "unknown" is both a part of a step and a kind of memory, with one colour.
    lines += [f".k-{name} {{ --k: var(--{_variable(kind.colour)}); }}" for name, kind in MEMORY_KINDS.items()]
    return "\n".join(lines)


def ink(ground: str) -> str:
    """Black or white, whichever has more contrast: WCAG's relative luminance, from which both contrasts follow."""
    channels = [int(ground[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#000000" if (luminance + 0.05) / 0.05 >= 1.05 / (luminance + 0.05) else "#ffffff"


def _variables(colours: dict[str, str]) -> Iterator[str]:
    for name, colour in colours.items():
        yield f"--{_variable(name)}: {colour}; --on-{_variable(name)}: {ink(colour)};"


def _variable(name: str) -> str:
    return name.replace("_", "-")
