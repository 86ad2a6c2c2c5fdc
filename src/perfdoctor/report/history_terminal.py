"""What does a terminal show of the history? A list of runs, one run, or one number over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from perfdoctor.history.metrics import step_ns
from perfdoctor.records.savings import CASES
from perfdoctor.report.history_json import stored_list
from perfdoctor.report.terminal_text import WIDEST, Terminal, columns, show, width_of, wrapped
from perfdoctor.report.words import trends, wording
from perfdoctor.report.words.foreign_text import clean, clean_name
from perfdoctor.vocabulary.parts import PARTS

if TYPE_CHECKING:
    from perfdoctor.history.facts import Row
    from perfdoctor.history.runs import StoredRun
    from perfdoctor.history.series import Trend

_HEADER = ("run", "recorded", "commit", "project", "program", "device", "step", "spread", "first finding", "")
_LEFT = (0, 1, 2, 3, 4, 5, 8, 9)
_DEVICE = _HEADER.index("device")
#: What of a column is left out where a terminal is too narrow, one after the other. An id is found by its begin.
_SHORTER: Sequence[tuple[int, Callable[[str], str]]] = (
    (_HEADER.index("commit"), lambda text: text[:7] + "+" * text.endswith("+")),
    (_HEADER.index("recorded"), lambda text: text[len("2026-") :]),
    (_HEADER.index("run"), lambda text: text[:8]),
    (_HEADER.index("first finding"), lambda text: clean_name(text, 16)),
    (_HEADER.index("project"), lambda text: clean_name(text, 14)),
    (_HEADER.index("program"), lambda text: clean_name(text, 14)),
    (_DEVICE, lambda text: clean_name(text, 10)),
)


def runs(rows: Sequence[Row], number: int, console: Terminal) -> None:
    """Print the newest runs, of `number` in all."""
    several = len({row["project_id"] for row in rows}) > 1
    cells: Sequence[Sequence[str]] = [_cells(row, project=several) for row in rows]
    device = ""
    if console.is_terminal:
        cells, device = _narrowed(cells, console.width)
    table = _table(cells)
    used = [place for place in range(len(_HEADER)) if any(line[place].plain for line in table[1:])]
    show(columns(_kept(table, used), words=[used.index(place) for place in _LEFT if place in used]), console)
    if device:
        show([Text(f"all on: {device}", style="dim")], console)
    if number > len(rows):
        show([Text(f"{wording.count(number - len(rows))} older ones: --limit", style="dim")], console)


def promises(rows: Sequence[Row], console: Terminal) -> None:
    """Print what was promised for each fix that was tried, and what came."""
    header = ("tried", "fix", "rule", "machine", "torch", "model", "promised", "measured", "pairs", "verdict")
    if not rows:
        show([Text("No fix was tried yet: perfdoctor treat tries them.", style="dim")], console)
        return
    cells = [
        (
            row["made_at"][:10], row["fix"], row["rule"] or "", row["machine"] or "", row["torch"] or "",
            row["size"] or "", _range_of(row, "promised"), _range_of(row, "measured"), str(row["pairs"] or 0),
            row["verdict"],
        )
        for row in rows
    ]  # fmt: skip
    table = [[Text(word, style="dim") for word in header], *([Text(clean(cell)) for cell in line] for line in cells)]
    show(columns(table, words=(0, 1, 2, 3, 4, 5, 9)), console)


def _range_of(row: Row, what: str) -> str:
    likely, low, high = (row[f"{what}_{case}"] for case in ("likely", "low", "high"))
    if likely is None:
        return "–"
    ends = f" ({low * 100:.0f} to {high * 100:.0f})" if low is not None and high is not None else ""
    return f"{likely * 100:.0f} %{ends}".replace("-", "−")


def _table(cells: Sequence[Sequence[str]]) -> list[list[Text]]:
    return [[Text(word, style="dim") for word in _HEADER], *([Text(cell) for cell in line] for line in cells)]


def _kept(table: Sequence[Sequence[Text]], used: Sequence[int]) -> list[list[Text]]:
    return [[line[place] for place in used] for line in table]


def _narrowed(cells: Sequence[Sequence[str]], room: int) -> tuple[list[list[str]], str]:
    """The cells shortened to `room` columns, as far as possible; and the device, where it is the same for all rows and
    said below instead. What is missed least goes first.
    """
    lines, device = [list(line) for line in cells], ""
    if not _fit(lines, room) and len({line[_DEVICE] for line in lines}) == 1:
        device = lines[0][_DEVICE]
        lines = [[*line[:_DEVICE], "", *line[_DEVICE + 1 :]] for line in lines]
    for place, shorter in _SHORTER:
        if _fit(lines, room):
            break
        for line in lines:
            line[place] = shorter(line[place])
    return lines, device


def _fit(lines: Sequence[Sequence[str]], room: int) -> bool:
    used = [place for place in range(len(_HEADER)) if any(line[place] for line in lines)]
    return width_of(_kept(_table(lines), used)) <= room


def _unnamed(gpus: int) -> str:
    return "unnamed GPU" if gpus else "no GPU"


def _cells(row: Row, *, project: bool) -> tuple[str, ...]:
    """The cells of one line. `project`: are there runs of several?"""
    gpus = row["gpus"] or 0
    device = clean_name(row["device"] or _unnamed(gpus), 24)
    marks = [
        *(f"[{clean_name(name, 24)}]" for name in row["pins"]),
        *(f"#{clean_name(tag, 24)}" for tag in row["tags"]),
    ]
    spread = ""
    if row["median_ns"] and row["p10_ns"] is not None and row["p90_ns"] is not None:
        spread = wording.share((row["p90_ns"] - row["p10_ns"]) / row["median_ns"])
    return (
        clean_name(row["id"]), trends.day(row["recorded_at"]),
        trends.short_commit(row["git_commit"] or "", dirty=bool(row["git_dirty"])),
        clean_name(row["project"] or "", 28) if project else "",
        clean_name(row["program"] or row["files"] or "", 28), f"{gpus} × {device}" if gpus > 1 else device,
        wording.duration(step) if (step := step_ns(row)) else "", spread,
        clean_name(row["first_finding"] or "", 28), " ".join(marks),
    )  # fmt: skip


def run(stored: StoredRun, console: Terminal) -> None:
    """Print all that is known of one run."""
    verdict = Text(clean(stored.facts["verdict"] or ""), style="bold")
    show(wrapped(verdict, console, min(console.width, WIDEST)), console)
    rows = [[Text(name, style="dim"), Text(text)] for name, text in _known(stored) if text]
    show(columns(rows, words=(0, 1)), console)
    show(_parts(stored), console)
    show(_findings(stored), console)
    show((Text(f"{trends.day(note['noted_at'])}  {clean(note['note'], 2000)}") for note in stored.notes), console)


def _known(stored: StoredRun) -> Iterator[tuple[str, str]]:
    facts = stored.facts
    yield "run", facts["id"] + "".join(f" [{clean_name(name)}]" for name in stored.pins)
    yield "recorded", f"{trends.day(facts['recorded_at'])} UTC, stored by perfdoctor {clean_name(facts['source'])}"
    yield "tags", " ".join(f"#{clean_name(tag)}" for tag in stored.tags)
    yield "commit", _commit(facts)
    yield "project", clean_name(facts["project"] or "")
    yield "command", clean(facts["command"] or "", 400)
    yield "folder", clean_name(facts["folder"] or "")
    yield "part", clean_name(facts["part"] or "")
    yield "exit code", "" if facts["exit_code"] is None else str(facts["exit_code"])
    gpus = facts["gpus"] or 0
    yield "device", (f"{gpus} × " if gpus > 1 else "") + clean_name(facts["device"] or _unnamed(gpus))
    yield "ranks", wording.count(facts["world_size"]) if facts["world_size"] else ""
    named = ((name, facts[name]) for name in ("perfdoctor", "torch", "cuda", "driver"))
    yield "versions", ", ".join(f"{name} {clean_name(str(text), 40)}" for name, text in named if text)
    yield "tools", clean(facts["tools"] or "", 200)
    yield "step", _step(facts)
    yield "predicted", _predicted(facts)
    yield "MFU", wording.fine_share(facts["mfu"]) if facts["mfu"] is not None else ""
    if facts["items_per_second"] is not None:
        yield f"{clean_name(facts['items'] or 'items')}/s", wording.count(facts["items_per_second"])
    peak = facts["peak_memory_bytes"] or facts["reserved_memory_bytes"]
    yield "peak memory", wording.size(peak) if peak else ""


def _commit(facts: Row) -> str:
    if not facts["git_commit"]:
        return ""
    branch = f" on {clean_name(facts['git_branch'])}" if facts["git_branch"] else ""
    by = "" if facts["git_from"] == "run" else ", checked out when it was stored"
    return clean_name(facts["git_commit"]) + branch + (", with changed files" if facts["git_dirty"] else "") + by


def _step(facts: Row) -> str:
    step, recorded = step_ns(facts), facts["recorded_step_ns"]
    if not step:
        return "no steps found"
    text = wording.duration(step)
    if recorded not in (None, step):
        text += f" without a recorder, {wording.duration(recorded)} while recorded"
    text += f", {wording.counted(facts['steps'] or 0, 'step')}"
    if facts["p10_ns"] is not None and facts["p90_ns"] is not None:
        text += f", 10th to 90th percentile {wording.duration(facts['p10_ns'])} to {wording.duration(facts['p90_ns'])}"
    return text


def _predicted(facts: Row) -> str:
    if not facts["predicted_ns"]:
        return ""
    about = wording.between(facts["predicted_low_ns"] or 0, facts["predicted_high_ns"] or 0)
    fixed = stored_list(facts["predicted_fixed"])
    names = ", ".join(clean_name(str(rule), 40) for rule in fixed) if isinstance(fixed, list) else ""
    return f"{wording.duration(facts['predicted_ns'])} ({about})" + (f" with {names} fixed" if names else "")


def _parts(stored: StoredRun) -> Iterator[Text]:
    window, step = stored.facts["window_ns"], stored.facts["recorded_step_ns"]
    if not window:
        return
    yield Text()
    rows = [
        [Text(PARTS[part].label if part in PARTS else clean_name(part)),
         Text(wording.duration(round(step * ns / window)) if step else ""), Text(wording.share(ns / window))]
        for part, ns in sorted(stored.parts.items(), key=lambda item: -item[1])
    ]  # fmt: skip
    yield from columns(rows, words=(0,))


def _findings(stored: StoredRun) -> Iterator[Text]:
    if not stored.findings:
        return
    yield Text()
    rows = []
    for each in stored.findings:
        low, likely, high = (each[f"{case}_ns"] or 0 for case in CASES)
        rows.append([
            Text(f"{each['position']}"), Text(("  " if each["symptom_of"] else "") + clean_name(each["rule"], 40)),
            Text(f"saves {wording.duration(likely)} ({wording.between(low, high)})" if each["high_ns"] else ""),
            Text(f"{clean_name(each['confidence'] or '')} confidence"),
        ])  # fmt: skip
    yield from columns(rows, words=(1, 3))


def trend(found: Trend, console: Terminal) -> None:
    """Print a sparkline, and what changed."""
    width = min(console.width, WIDEST)

    def lines() -> Iterator[Text]:
        yield from wrapped(Text(trends.heading(found), style="bold"), console, width)
        facts = " · ".join(piece for piece in trends.facts(found) if piece)
        yield from wrapped(Text(facts, style="dim"), console, width)
        values = [point.value for point in found.points]
        yield from (Text(), Text(trends.sparkline(values, width)))
        low, high, last = (trends.value(found.metric, each) for each in (min(values), max(values), values[-1]))
        yield Text(f"{low} to {high}, last {last}")
        for sentence, causes in trends.changes(found):
            yield from (Text(), *wrapped(Text(sentence), console, width), *(Text(f"  {cause}") for cause in causes))
        for remark in trends.left_out(found):
            yield from (Text(), *wrapped(Text(remark, style="dim"), console, width))

    show(lines(), console)
