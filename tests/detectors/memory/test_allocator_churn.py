"""allocator-churn: is PyTorch's cache turned off, so that each tensor asks the driver?"""

from __future__ import annotations

from builders import draw, findings, only_finding, summary

#: A launch a kernel, and before it the driver is asked for memory; behind it memory is given back.
MEMORY = {
    "m": ("calls", "cudaMalloc"),
    "x": ("calls", "cudaFree"),
    "p": ("calls", "hipMalloc"),
    "y": ("calls", "hipFree"),
}


def drawn(host: str, repeat: int = 6, mark: str | None = "ProfilerStep#{n}"):
    return draw(
        kernels=" " * 5 + "#" * 5 + " " * 5 + "G" * 5, host=[host], legend=MEMORY, repeat=repeat, mark=mark, unit_us=500
    )


def test_one_request_for_each_kernel_that_is_given_back_is_no_cache():
    for host in ("mmm lxxxx mmm lxxxx ", "ppp lyyyy ppp lyyyy "):
        finding = only_finding("allocator-churn", drawn(host))
        assert (finding.situation, finding.confidence) == ("uncached", "high")
        assert "2 requests a step" in summary(finding)


def test_without_steps_it_comes_again_all_the_same():
    finding = only_finding("allocator-churn", drawn("mmm lxxxx mmm lxxxx ", mark=None))
    assert finding.situation == "uncached"
    assert finding.saving_ns_per_step.likely > 0


def test_a_cache_that_fills_gives_nothing_back():
    assert only_finding("allocator-churn", drawn("mmm l     mmm l     ")).situation == ""


def test_a_cache_that_is_emptied_asks_seldom():
    picture = draw(kernels=" " * 10 + "#+" * 10, host=["mmmxxxxxx " + "l" * 20], legend=MEMORY, repeat=6, unit_us=500)
    assert [finding.situation for finding in findings("allocator-churn", picture)] == [""]
