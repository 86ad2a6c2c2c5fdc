"""What does a person read in the browser? One self-contained page that loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment
from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor import __version__
from perfdoctor.patterns import regex
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.findings import Advice, Measure, Rows, Span
from perfdoctor.records.time_split import TimeSplit
from perfdoctor.records.views import Views
from perfdoctor.report import charts, embedded, first_screen, json_report, part_colours, templates
from perfdoctor.report.words import (
    code_lines,
    cost,
    derivations,
    efficiency,
    memory,
    outlook,
    run_time,
    skipped_rules,
    wording,
)
from perfdoctor.report.words.fix_text import blocks
from perfdoctor.report.words.foreign_text import clean, clean_name, clean_note, is_web_address
from perfdoctor.report.words.parts import (
    SHOWN_FINDINGS,
    all_parts,
    parts,
    place_names,
    shown_places,
    split_base_ns,
    what_computes,
)
from perfdoctor.vocabulary.categories import PAGES
from perfdoctor.vocabulary.parts import PARTS, SHOWN_PARTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfdoctor.history.series import Trend
    from perfdoctor.records.predictions import Prediction

SHOWN_RANKS = 16
#: A rank takes 1.5 kB of the page's own JSON, and its file a line: with more ranks these would be most of the page.
MOST_RANKS = 256
_BY_RANK = ("time", "gpus", "memory")
#: A page with a row for each of more ranks would be slow to load: the page `ranks` has those that stand out.
_MOST_FOLDED = 64
#: In this order: a file uses what earlier files define, or what is only called after all are loaded.
STYLES = ("style.css", "charts.css", "icicle.css", "tables.css", "timeline.css")
SCRIPTS = (
    "format.js", "shell.js", "csv.js", "tables.js", "icicle.js", "timeline_data.js", "timeline_layout.js",
    "timeline_colours.js", "timeline_raster.js", "timeline_draw.js", "timeline_overlay.js", "timeline_axis.js",
    "timeline_search.js", "timeline_panel.js", "timeline_toolbar.js", "timeline_stage.js", "timeline_input.js",
    "timeline.js", "unpack.js", "start.js",
)  # fmt: skip
_BEFORE_UNIT = regex(r"(?<=\d) (?=(?:%|[nµm]?s\b|[KMGT]?i?B\b))")
#: Colours of the parts in a notebook, where a page has its style sheet.
COLOURS = {name: part.colour for name, part in SHOWN_PARTS.items()}


class Page(Struct, frozen=True):
    """A page, and which styles and scripts its Content-Security-Policy admits: their hashes, "" for none."""

    text: str
    style_hash: str
    script_hash: str


def page(template: str, styles: Sequence[str], scripts: Sequence[str] = (), **words: Any) -> Page:
    """The page that `template` makes of `words`, with these styles and scripts in it."""
    style, script = f"\n{part_colours.style_sheet()}{joined(styles)}", joined(scripts) if scripts else ""
    hashes = {"style_hash": content_hash(style), "script_hash": content_hash(script) if script else ""}
    known = {"style": Markup(style), "script": Markup(script), "version": __version__}  # noqa: S704 files of our own
    return Page(environment().get_template(template).render(**known, **hashes, **words), **hashes)


def render(diagnosis: Diagnosis, views: Views | None = None) -> str:
    """The whole page. Without views it has neither tables nor charts nor a timeline."""
    return page(
        "page.html.j2",
        STYLES,
        SCRIPTS,
        diagnosis=diagnosis,
        views=views or Views(),
        pages=_pages(views or Views(), diagnosis),
        titles=PAGES,
        data=Markup(embedded.plain(json_report.render(_embedded(diagnosis)))),  # noqa: S704 escaped there
        packed=embedded.packed(views) if views else "",
        packed_timeline=embedded.packed_timeline(views.timeline) if views and views.timeline else "",
        parts=all_parts(diagnosis),
        what_computes=what_computes(diagnosis),
        part_labels={name: part.labels(without_gpu=wording.without_gpu(diagnosis))[0] for name, part in PARTS.items()},
        ranks=_ranks(diagnosis.time),
        stages=outlook.stages(diagnosis, also_one=True),
        facts=first_screen.facts(diagnosis),
        anchors=_anchors(diagnosis.findings),
        efficiency=efficiency.line(diagnosis),
        cost=cost.line(diagnosis),
        run_time=run_time.line(diagnosis),
    ).text


def _embedded(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis that the page carries for scripts: of a very large job the rows of the ranks read in full."""
    if len(diagnosis.time) <= MOST_RANKS:
        return diagnosis
    kept = {split.rank for split in diagnosis.recording}
    note = f"This copy has the rows of {len(kept)} of {len(diagnosis.time):,} ranks: --json FILE writes those of all."
    return replace(
        diagnosis, notes=(*diagnosis.notes, note), sources=diagnosis.sources[:MOST_RANKS],
        **{name: tuple(each for each in getattr(diagnosis, name) if each.rank in kept) for name in _BY_RANK},
    )  # fmt: skip


def render_trend(trend: Trend) -> str:
    """The page of a number of the history, without a script."""
    from perfdoctor.report.words import trends  # noqa: PLC0415 (it loads the history)
    from perfdoctor.views.series import trend_chart  # noqa: PLC0415

    picture = charts.chart(trend_chart(trend))
    return page("trend.html.j2", ("style.css", "charts.css"), trend=trend, picture=picture, words=trends).text


def cell(diagnosis: Diagnosis) -> str:
    """What a notebook shows: the verdict, the parts of the step, and the findings with their first fix.

    One element that loads nothing and has no script; its text has the colour of what is around it.
    """
    return environment().get_template("cell.html.j2").render(
        diagnosis=diagnosis, parts=all_parts(diagnosis), colours=COLOURS, ink=part_colours.ink,
        unchecked=sum(outcome.status in ("skipped", "failed") for outcome in diagnosis.outcomes),
    )  # fmt: skip


def prediction_cell(prediction: Prediction) -> str:
    """What a notebook shows: the step as it is, after each fix or size, and the range of the last; as lengths, too."""
    shown = outlook.stages_of(prediction)
    template = environment().get_template("prediction_cell.html.j2")
    return template.render(prediction=prediction, stages=shown, longest_ns=outlook.longest_ns(shown))


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates, with what all of them may call."""
    environment = templates.environment()
    environment.globals.update(
        w=wording, skipped_rules=skipped_rules, derived=derivations, code=code_lines, outlook=outlook, memory=memory,
        chart=charts.chart, heat=charts.heat, clean=clean, clean_name=clean_name, clean_note=clean_note, blocks=blocks,
        check=first_screen.check, rank_parts=lambda split: parts([split], split_base_ns(split)),
        split_base_ns=split_base_ns, SHOWN=SHOWN_FINDINGS, MOST_FILES=MOST_RANKS,
    )  # fmt: skip
    # `unbroken` keeps a number and its unit on one line.
    environment.filters.update(
        unbroken=lambda text: _BEFORE_UNIT.sub("\u00a0", text), split_base_ns=split_base_ns,
    )  # fmt: skip
    environment.tests.update(
        measure=lambda evidence: isinstance(evidence, Measure),
        rows=lambda evidence: isinstance(evidence, Rows),
        span=lambda evidence: isinstance(evidence, Span),
        web_address=is_web_address,
    )
    return environment


def joined(names: Sequence[str]) -> str:
    """The text of several files, for one element."""
    return "\n" + "\n".join(map(templates.page_file, names))


def content_hash(text: str) -> str:
    """The hash by which a Content-Security-Policy permits this text and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _pages(views: Views, diagnosis: Diagnosis) -> list[str]:
    """The pages that have content."""
    filled = {each.page for shown in (views.tables, views.charts, views.heats, views.icicles) for each in shown}
    others = {
        "timeline": views.timeline,
        "memory": diagnosis.memory,
        "steps": diagnosis.critical_path,
        "ranks": len(diagnosis.time) > 1,
    }
    return [page for page in PAGES if page in filled or others.get(page)]


def _anchors(findings: Sequence[Advice]) -> dict[str, str]:
    """The id of each rule's first finding on the page; "" for any other key."""
    anchors: defaultdict[str, str] = defaultdict(str)
    for number, advice in reversed(list(enumerate(findings, start=1))):
        anchors |= {symptom.rule: f"symptom-{symptom.rank}" for symptom in advice.symptoms}
        anchors[advice.rule] = f"finding-{number}"
    return anchors


def _ranks(splits: Sequence[TimeSplit]) -> tuple[list[tuple[str, TimeSplit]], list[tuple[str, TimeSplit]]]:
    """The ranks shown first, and if these are not all, all ranks for the fold (not too many); each with its name."""
    if len(splits) < 2:
        return [], []
    names = place_names(splits)
    shown = shown_places(splits, SHOWN_RANKS)
    named = [(names[s.rank, s.device] + (f" ({remark})" if remark else ""), s) for s, remark in shown]
    fold = len(shown) < len(splits) <= _MOST_FOLDED
    return named, [(names[s.rank, s.device], s) for s in splits] if fold else []
