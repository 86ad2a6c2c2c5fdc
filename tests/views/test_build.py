"""Does one page that cannot be made leave the others as they are?"""

from __future__ import annotations

from builders import draw_steps

from perfdoctor.diagnosis.engine import examine
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.views import build


def test_a_page_without_a_module_is_a_note_and_the_others_are_made(monkeypatch):
    examination = examine(prepare(draw_steps(kernels="####  ")), [])
    whole = build.views(examination.run, examination.diagnosis)
    assert whole.charts
    assert whole.failed == ()
    monkeypatch.setattr(build, "PAGES", {"nowhere": "Nowhere", **build.PAGES})
    made = build.views(examination.run, examination.diagnosis)
    assert made.failed == (("nowhere", "ModuleNotFoundError: No module named 'perfdoctor.views.pages.nowhere'"),)
    assert [chart.title for chart in made.charts] == [chart.title for chart in whole.charts]
    assert [table.title for table in made.tables] == [table.title for table in whole.tables]
