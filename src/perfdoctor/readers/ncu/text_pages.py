"""Which launches did Nsight Compute print as text, as it does on a terminal, and what did it measure of them?

Behind a line with the kernel's name follow, on the page `details`, sections: tables whose columns are as wide as their
rules of dashes, and the results of NVIDIA's rules, with their estimates but without their names. The page `raw` has one
table of all metrics instead. The program's own output may stand between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from perfdoctor.errors import PerfdoctorError
from perfdoctor.patterns import regex
from perfdoctor.readers.ncu.cell_numbers import has_decimal_comma, number
from perfdoctor.readers.ncu.metric_names import Launch, RuleAdvice, rule_named, speedup_share

#: Older versions print the time of day in place of the sizes.
_LAUNCH = regex(
    r"^ {2}(?P<name>\S.*?)"
    r"(?: \((?P<grid>\d+, \d+, \d+)\)x\((?P<block>\d+, \d+, \d+)\)|, \d{4}-\w{3}-\d\d \d\d:\d\d:\d\d)"
    r", Context \d+, Stream \d+(?:, Device (?P<device>\d+))?(?:, CC (?P<major>\d+)\.(?P<minor>\d))?\s*$"
)
_SECTION = regex(r"^ {4}Section: (.+?)\s*$")
_DASHES = regex(r"^(?: {2}| {4})-{3,}(?: -{3,})+\s*$")
_RESULT = regex(r"^ {4}(?:OPT|INF|WRN|ERR) +(.*?)\s*$")
_MORE = regex(r"^ {10}(\S.*?)\s*$")
_GPU = "device__attribute_display_name"
_ESTIMATE = regex(r"Est\. (Local )?Speedup: ([\d.,]+)%\s*")
#: Of one launch: each section's metrics as (label, unit, value), and the texts of its results.
_Cells = list[tuple[str, str, str]]
_Results = list[tuple[str, str]]


def parse(text: str, file: str) -> tuple[Launch, ...]:
    """All launches of a text. PerfdoctorError where it holds none."""
    found = list(_launches(text.splitlines()))
    comma = has_decimal_comma(value for _, cells, _ in found for _, _, value in cells)
    for launch, cells, results in found:
        for label, unit, value in cells:
            launch.metrics.setdefault(label, []).append((number(value, decimal_comma=comma), unit))
            launch.gpu = value if label == _GPU else launch.gpu
        launch.advice += [_advice(section, said, decimal_comma=comma) for section, said in results]
    if not found:
        raise PerfdoctorError(
            f"{file} is text output of Nsight Compute in which no kernel's numbers stand",
            do="Pass the .ncu-rep itself, or print it: ncu --import report.ncu-rep --csv --page raw > k.csv",
        )
    return tuple(launch for launch, _, _ in found)


def _launches(lines: Sequence[str]) -> Iterator[tuple[Launch, _Cells, _Results]]:
    """Each launch with its cells and results, as they are printed."""
    at: tuple[Launch, _Cells, _Results] | None = None
    section, columns = "", list[slice]()
    for line in lines:
        if found := _LAUNCH.match(line):
            if at and at[1]:
                yield at
            at, columns = (_launch(found), [], []), []
        elif at is None:
            continue
        elif found := _SECTION.match(line):
            section, columns = found[1], []
        elif _DASHES.match(line):
            columns = [slice(*each.span()) for each in re.finditer("-+", line)]
        elif found := _RESULT.match(line):
            at[2].append((section, found[1]))
        elif (found := _MORE.match(line)) and at[2]:
            at[2][-1] = (at[2][-1][0], f"{at[2][-1][1]} {found[1]}")
        elif len(columns) == 3 and line.strip():
            label, unit, value = (line[each].strip() for each in columns)
            at[1].append((label, unit, value))
    if at and at[1]:
        yield at


def _launch(found: re.Match[str]) -> Launch:
    device, major = found["device"], found["major"]
    return Launch(
        found["name"],
        device=int(device) if device and len(device) < 10 else -1,
        grid=_sizes(found["grid"]),
        block=_sizes(found["block"]),
        compute_capability=10 * int(major) + int(found["minor"]) if major and len(major) < 3 else -1,
    )


def _sizes(text: str | None) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in text.split(", ")) if text and len(text) < 40 else ()
    return sizes if all(sizes) else ()  # no launch has a size of 0


def _advice(section: str, said: str, *, decimal_comma: bool) -> RuleAdvice:
    """The result of a rule. Its name is not printed: the section's stands for it."""
    estimate = _ESTIMATE.match(said)
    message = said[estimate.end() :] if estimate else said
    share = speedup_share(number(estimate[2], decimal_comma=decimal_comma) if estimate else float("nan"))
    return RuleAdvice(rule_named(message) or section, share, bool(estimate and not estimate[1]), message)
