"""How is a chart drawn? As SVG without a library: it prints, needs no script, and shows its numbers as tooltips."""

from perfdoctor.report.charts.heat import heat
from perfdoctor.report.charts.picture import chart

__all__ = ["chart", "heat"]
