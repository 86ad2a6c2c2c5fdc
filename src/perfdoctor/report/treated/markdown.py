"""What does one paste of treatments into a pull request?"""

from __future__ import annotations

from perfdoctor.report.markdown import escaped, joined, listed, table
from perfdoctor.report.treated import words
from perfdoctor.report.words.foreign_text import clean_note
from perfdoctor.treatments.records import TreatResult


def render(result: TreatResult) -> str:
    rows = [
        (
            row.fix, words.promised(row), words.saving(row.measured), words.memory(row), words.loss(row.loss),
            words.reason(row),
        )
        for row in words.rows(result)
    ]  # fmt: skip
    head = ("fix", "promised", "measured", "memory", "loss", "verdict")
    patch = words.patch(result)
    return joined((
        [f"**{escaped(words.verdict(result))}**"],
        table(head, (False, True, True, True, False, False), [map(escaped, row) for row in rows]) if rows else [],
        [escaped(words.together(result.together))] if result.together else [],
        ["```python", *patch, "```"] if patch else [],
        listed("Not tried", (escaped(f"{name}: {why}") for name, why in result.left_out.items())),
        listed("How it was measured", map(escaped, [*words.how(result), *map(clean_note, result.notes)])),
    ))  # fmt: skip
