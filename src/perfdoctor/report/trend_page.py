"""How does a browser show a number of the history? One page in the style of the report, without a script."""

from __future__ import annotations

from markupsafe import Markup

from perfdoctor import __version__
from perfdoctor.history.series import Trend
from perfdoctor.report import charts, part_colours
from perfdoctor.report.html import content_hash, environment, joined
from perfdoctor.report.words import trends
from perfdoctor.views.trend import chart

_STYLES = ("style.css", "charts.css")


def render(trend: Trend) -> str:
    style = f"\n{part_colours.style_sheet()}{joined(_STYLES)}"
    page: str = environment().get_template("trend.html.j2").render(
        trend=trend,
        picture=charts.chart(chart(trend)),
        words=trends,
        style=Markup(style),  # noqa: S704 a file of our own
        style_hash=content_hash(style),
        version=__version__,
    )  # fmt: skip
    return page
