"""zero-grad-fills: gradients are filled with zeros at every step."""

from __future__ import annotations

from builders import draw, findings, only_finding, summary

from perfdoctor.diagnose import diagnose
from perfdoctor.rulebook import load_rules

MS = 1_000_000
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"


def step(fills: int, *, of: int = 100, mark: str = "z", unit_us: float = 100, **more):
    """Compute of one kernel, then `fills` kernels of one unit each, launched while `mark` runs."""
    before = of - fills
    chain = "".join("fg"[n % 2] for n in range(fills))
    picture = {
        "kernels": "#" * before + chain,
        "host": ["l" + " " * (before - fills - 2) + "l" * fills, " " * (before - fills - 1) + mark * fills],
        "kernel_names": {"f": FILL, "g": FILL},
        "legend": {"z": ("ranges", "Optimizer.zero_grad#SGD.zero_grad")},
        "repeat": 6,
        "unit_us": unit_us,
    }
    return draw(**{**picture, **more})


def test_it_fires_where_kernels_fill_the_gradients():
    finding = only_finding("zero-grad-fills", step(10), avoidable_share_low=0.8, avoidable_share_likely=1.0)
    # 10 kernels of 0.1 ms in a step of 10 ms
    assert finding.values == {"fills_per_step": 10.0, "filling_ms": 1.0, "step_ms": 10.0, "filling_percent": 10.0}
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == (0.8 * MS, MS, MS)
    assert "zero_grad launches 10 kernels and memsets a step" in summary(finding)


def memsets():
    return draw(
        copies=" " * 10 + "m" * 10 + " " * 20,
        kernels="#" * 10 + " " * 10 + "#" * 20,
        host=["lll", " z"],
        legend={"z": ("ranges", "Optimizer.zero_grad#SGD.zero_grad")},
        repeat=6,
        unit_us=1000,
    )


def test_memsets_hang_under_exposed_copies_and_kernels_do_not():
    assert only_finding("zero-grad-fills", memsets()).symptom_of == ("exposed-copies",)
    assert only_finding("zero-grad-fills", step(10)).symptom_of == ()
    found = diagnose(memsets(), list(load_rules().values())).findings
    above = next(each for each in found if each.rule == "exposed-copies")
    assert [each.rule for each in above.symptoms] == ["zero-grad-fills"]


def test_it_stays_silent_just_below_the_threshold():
    assert findings("zero-grad-fills", step(2)) == []  # 2 %
    assert len(findings("zero-grad-fills", step(3))) == 1
    assert findings("zero-grad-fills", step(10, unit_us=9.9)) == []  # shorter than 10 µs: small-kernels'
    assert len(findings("zero-grad-fills", step(10, unit_us=10))) == 1


def test_it_stays_silent_where_fills_are_not_zero_grads():
    assert findings("zero-grad-fills", step(10, mark="r")) == []


def test_it_stays_silent_where_gradients_are_let_go():
    """The range is there, and launches nothing."""
    empty = {"host": ["l" + "l" * 10, " " * 20 + "z" * 10]}
    assert findings("zero-grad-fills", step(10, **empty)) == []
