"""What does a report look like? Takes the pictures of docs/: a planted training, diagnosed, and shown in Chromium.

    python scripts/take_pictures.py [OUT]

The training is one of `fixtures/plant.py`, so that everybody gets the same pictures, on any machine.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright
from rich.console import Console

import perfdoctor
from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.readers.open import read
from perfdoctor.report import terminal
from perfdoctor.vocabulary.categories import PAGES
from perfdoctor.vocabulary.rulebook import load_rules

ROOT = Path(__file__).parents[1]
PLANTED = ["input-wait=0.2", "rank-skew=0.1", "fp32-matmuls=0.15", "--ranks", "4", "--seed", "3"]
PICTURES = ROOT / "docs" / "pictures"
SCREEN, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}


def recording(folder: Path) -> Path:
    """The planted training's traces, one a rank."""
    plant = [sys.executable, str(ROOT / "fixtures" / "plant.py"), *PLANTED, "-o", str(folder)]
    subprocess.run(plant, check=True, cwd=ROOT)
    return folder / "torch"


def report(folder: Path, traces: Path) -> Path:
    page = folder / "report.html"
    command = [sys.executable, "-c", "from perfdoctor.cli.main import main; main()", "analyze", str(traces)]
    subprocess.run([*command, "--html", str(page), "--quiet"], check=True)
    return page


def terminal_text(traces: Path) -> str:
    """What the terminal shows, as SVG in the fonts that are here."""
    diagnosis = diagnose(read([traces]), list(load_rules().values()))
    console = Console(record=True, width=88, force_terminal=True, color_system="truecolor", file=io.StringIO())
    terminal.render(diagnosis, console)
    drawn = console.export_svg(title="perfdoctor analyze traces/")
    return re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL).replace("Fira Code", "DejaVu Sans Mono")


def take(page: Page, out: Path) -> None:
    """The first screen, a finding, and every page of which docs/ has a picture, from the page as it was opened."""
    shown = [name for name in PAGES if (PICTURES / f"{name}.png").exists()]
    for name, address in {"report": "overview", "finding": "finding-1", **dict(zip(shown, shown, strict=True))}.items():
        page.evaluate("address => { location.hash = address; }", f"#{address}")
        page.wait_for_timeout(400)  # the canvas draws at the next frame
        page.screenshot(path=out / f"{name}.png")


def notebook(traces: Path) -> str:
    """A cell, and what a notebook shows below it."""
    call = f'perfdoctor.analyze("{traces.name}/")'
    style = "margin:0 0 10px;padding:6px 8px;border:1px solid #ccc;background:#f7f7f7;font:13px monospace"
    return f'<body style="margin:16px"><div style="{style}">{call}</div>{perfdoctor.analyze(traces)._repr_html_()}'


def main() -> int:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES
    out.mkdir(parents=True, exist_ok=True)
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print("No Chromium here: apt-get install chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as play:
        traces = recording(Path(scratch) / "planted")
        page_file = report(Path(scratch), traces)
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport=SCREEN)
        page.goto(page_file.as_uri())
        take(page, out)
        shell = browser.new_page(viewport={"width": 1092, "height": 900})
        shell.set_content(terminal_text(traces))
        shell.locator("svg").screenshot(path=out / "terminal.png")
        cell = browser.new_page(viewport={"width": 940, "height": 640})
        cell.set_content(notebook(traces))
        cell.screenshot(path=out / "notebook.png")
        for name, size, scheme in (("dark", SCREEN, "dark"), ("phone", PHONE, "light")):
            other = browser.new_page(viewport=size, color_scheme=scheme)
            other.goto(page_file.as_uri())
            other.screenshot(path=out / f"{name}.png")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
