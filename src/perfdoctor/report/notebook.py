"""What does a notebook show of a diagnosis, a comparison or a prediction? One element without a script.

It loads nothing, and
is readable on a light and on a dark page: its text has the colour of what is around it.
"""

from __future__ import annotations

from perfdoctor.comparison.records import Comparison
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.predictions import Prediction
from perfdoctor.report.comparison import words
from perfdoctor.report.comparison.html import bars
from perfdoctor.report.html import environment
from perfdoctor.report.part_colours import ink
from perfdoctor.report.words.outlook import longest_ns, stages_of
from perfdoctor.report.words.parts import all_parts
from perfdoctor.vocabulary.parts import SHOWN_PARTS

_COLOURS = {name: part.colour for name, part in SHOWN_PARTS.items()}


def render(diagnosis: Diagnosis) -> str:
    """The verdict, the parts of the step, and the findings with their first fix."""
    page = environment().get_template("cell.html.j2")
    unchecked = sum(outcome.status in ("skipped", "failed") for outcome in diagnosis.outcomes)
    return page.render(diagnosis=diagnosis, parts=all_parts(diagnosis), colours=_COLOURS, ink=ink, unchecked=unchecked)


def render_comparison(comparison: Comparison) -> str:
    """The verdict, a waterfall from the step before to the step after, and what became of the findings."""
    page = environment().get_template("comparison_cell.html.j2")
    return page.render(comparison=comparison, bars=bars(comparison), colours=_COLOURS, words=words)


def render_prediction(prediction: Prediction) -> str:
    """The step as it is, after each fix or size, and the range of the last; as lengths, too."""
    shown = stages_of(prediction)
    page = environment().get_template("prediction_cell.html.j2")
    return page.render(prediction=prediction, stages=shown, longest_ns=longest_ns(shown))
