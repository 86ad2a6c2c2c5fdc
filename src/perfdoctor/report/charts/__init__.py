"""How is a chart drawn? As SVG of our own: it prints, needs no script, and says its numbers."""

from perfdoctor.report.charts.heat import heat
from perfdoctor.report.charts.picture import chart

__all__ = ["chart", "heat"]
