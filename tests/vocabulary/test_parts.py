"""Can every part of a step be distinguished from every other, wherever it is shown?"""

from __future__ import annotations

import re

import pytest

from perfdoctor.report import html
from perfdoctor.report.part_colours import ink, style_sheet
from perfdoctor.vocabulary.kinds import MEMORY_KINDS
from perfdoctor.vocabulary.parts import IDLE_CAUSES, PARTS, SHOWN_PARTS, SHRINKS, WORK_PARTS
from perfdoctor.vocabulary.rulebook import load_rules


@pytest.mark.parametrize("column", ["label", "short", "colour", "dark", "glyph", "ascii_glyph"])
def test_no_two_parts_are_shown_alike(column):
    values = [getattr(part, column) for part in SHOWN_PARTS.values()]
    assert len(set(values)) == len(values)
    assert all(values)


def test_a_part_is_one_character_and_two_colours():
    for name, part in SHOWN_PARTS.items():
        assert len(part.glyph) == len(part.ascii_glyph) == 1, name
        assert part.ascii_glyph.isascii(), name
        assert re.fullmatch("#[0-9a-f]{6}", part.colour), name
        assert re.fullmatch("#[0-9a-f]{6}", part.dark), name


def test_idle_is_called_idle_and_says_who_is_waited_for():
    for name in IDLE_CAUSES:
        assert PARTS[name].label.startswith("idle: ")
        assert PARTS[name].waits_for or name == "unknown"
    assert not any(part.waits_for or part.label.startswith("idle") for part in WORK_PARTS.values())


def test_what_owns_a_part_is_a_rule():
    missing = {rule for part in PARTS.values() for rule in part.rules} - set(load_rules())
    assert not missing, (
        f"no such rule: {missing}; add rules/<category>/<id>.toml, or take it out of vocabulary/parts.toml"
    )


def test_the_fix_of_an_idle_cause_is_replayed():
    """Without `action` a rule's saving would quietly be its assumed share. A profiler's time is nobody's to save."""
    owners = ((cause, load_rules()[rule]) for cause in IDLE_CAUSES for rule in PARTS[cause].rules)
    forgotten = [rule.id for cause, rule in owners if SHRINKS.get(rule.action) != cause]
    assert set(forgotten) <= {"profiler-overhead", "idle-unknown"}, (
        "set `action` in the rule's TOML to a key of SHRINKS"
    )


def test_what_fixes_act_on_shrinks_a_part():
    assert set(SHRINKS.values()) <= set(PARTS)
    assert {rule.action for rule in load_rules().values()} - {""} <= set(SHRINKS)


def test_the_page_has_a_colour_for_every_part_and_every_kind_of_memory():
    style = style_sheet()
    for name in SHOWN_PARTS:
        variable = name.replace("_", "-")
        assert len(re.findall(rf"--{variable}: #", style)) == 2  # light and dark
        assert f".p-{name} {{ background: var(--{variable}); color: var(--on-{variable}); }}" in style
    for name, kind in MEMORY_KINDS.items():
        assert f".k-{name} {{ --k: var(--{kind.colour.replace('_', '-')}); }}" in style


def test_every_colour_that_the_page_names_is_there():
    style = style_sheet() + html.joined(html.STYLES)
    named = set(re.findall(r"var\((--[\w-]+)\)", style + html.joined(html.SCRIPTS)))
    named |= set(re.findall(r'"(--[\w-]+)"', html.joined(html.SCRIPTS)))
    set_by_scripts = set(re.findall(r'setProperty\("(--[\w-]+)"', html.joined(html.SCRIPTS)))
    assert named - set_by_scripts == {name for name in named if f"{name}:" in style}


@pytest.mark.parametrize(("ground", "upon"), [("#000000", "#ffffff"), ("#f0dc3c", "#000000"), ("#0072b2", "#ffffff")])
def test_what_is_written_upon_a_colour_can_be_read(ground, upon):
    assert ink(ground) == upon
