"""Is the page self-contained and safe: does it load nothing, and run no script but its own?"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace
from report.samples import ASKED, COMMUNICATION, INPUT_BOUND, NO_STEPS, POISONED, SAMPLES

from perfdoctor.records.views import Table, TableColumn, Views
from perfdoctor.report import first_screen, html, json_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ALLOWED = {
    "a", "b", "body", "button", "caption", "code", "dd", "details", "div", "dl", "dt", "footer", "h1", "h2", "h3",
    "h4", "head", "header", "html", "i", "li", "link", "main", "meta", "nav", "noscript", "ol", "p", "pre", "script", "section", "span", "style",
    "circle", "desc", "figcaption", "figure", "g", "line", "path", "rect", "svg", "text",
    "summary", "table", "tbody", "td", "th", "thead", "title", "tr", "ul",
}  # fmt: skip
VOID = {"meta", "link"}


class Page(HTMLParser):
    """The tags with their attributes, the text of each element kind, and whether every tag is closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open = [], {}, []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


@pytest.fixture(params=SAMPLES)
def page(request):
    return Page(html.render(SAMPLES[request.param]))


def test_every_tag_is_one_of_ours_and_closed(page):
    assert page.open == []
    assert {tag for tag, _ in page.tags} <= ALLOWED
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)


def test_nothing_is_loaded(page):
    for tag, attributes in page.tags:
        assert not {"src", "srcset", "data", "action", "background"} & set(attributes)
        if "href" in attributes:
            assert tag == "a" or attributes["href"] == "data:,"
            assert attributes["href"].startswith(("https://", "http://", "data:,", "#"))
        assert "url(" not in attributes.get("style", "")
    assert not re.search(r"url\(|@import|http", "".join(page.texts["style"]))
    policy = next(attributes["content"] for tag, attributes in page.tags if "http-equiv" in attributes)
    assert policy.startswith("default-src 'none'")
    assert "unsafe-eval" not in policy
    assert "script-src 'sha256-" in policy
    assert "'unsafe-inline'" not in re.search("script-src([^;]*)", policy)[1]


def test_the_policy_lets_in_our_script_and_our_style_by_what_they_say(page):
    policy = next(attributes["content"] for tag, attributes in page.tags if "http-equiv" in attributes)
    for kind, text in (("script", page.texts["script"][-1]), ("style", "".join(page.texts["style"]))):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_no_link_inside_the_page_leads_nowhere(page):
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    inside = {a["href"][1:] for tag, a in page.tags if tag == "a" and a["href"].startswith("#")}
    assert {name.split(":")[0] for name in inside} <= set(ids)


def test_the_data_says_what_the_json_report_says_and_the_script_is_ours():
    page = Page(html.render(POISONED))
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "diagnosis"}, {}]
    assert json.loads(page.texts["script"][0]) == json.loads(json_report.render(POISONED))
    assert page.texts["script"][-1] == html.render(INPUT_BOUND).split("<script>")[1].split("</script>")[0]


def test_of_thousands_of_ranks_the_page_carries_those_read_in_full_and_says_where_all_are():
    split, gpu, source = COMMUNICATION.time[0], COMMUNICATION.gpus[0], COMMUNICATION.sources[0]
    whole = replace(
        COMMUNICATION,
        time=tuple(replace(split, rank=rank) for rank in range(1_000)),
        gpus=tuple(replace(gpu, rank=rank) for rank in range(1_000)),
        sources=(source,) * 1_000,
        recording=(replace(split, rank=7),),
    )
    page = html.render(whole)
    data = json.loads(re.search(r'id="diagnosis">(.*?)</script>', page, re.DOTALL)[1])
    assert [each["rank"] for each in data["time"]] == [each["rank"] for each in data["run"]["gpus"]] == [7]
    assert "1 of 1,000 ranks: --json FILE" in data["notes"][-1]
    assert "and 744 more" in page
    assert len(json.loads(json_report.render(whole))["time"]) == 1_000


def test_a_reference_that_is_no_web_address_is_no_link():
    links = {attributes["href"] for tag, attributes in Page(html.render(POISONED)).tags if tag == "a"}
    links = {link for link in links if not link.startswith("#")}
    assert links == {"https://example.org/?a=1&b=<2>", "https://pytorch.org/docs/stable/data.html"}


def test_the_head_says_whose_file_it_is():
    assert b"<!-- perfdoctor report" in html.render(INPUT_BOUND).encode()[:1024]


def test_every_rank_has_a_bar_and_every_part_a_name():
    page = Page(html.render(COMMUNICATION))
    bars = [attributes for _, attributes in page.tags if attributes.get("class") == "bar"]
    assert len(bars) == 8
    assert "exposed communication" in "".join(page.texts["span"])


def test_the_step_s_parts_are_as_wide_as_their_time():
    page = Page(html.render(INPUT_BOUND))
    flex = [
        int(a["style"].removeprefix("flex:").split()[0]) for _, a in page.tags if a.get("class", "").startswith("part")
    ]
    assert sum(flex) == INPUT_BOUND.time[0].window_ns


def test_each_stage_is_as_wide_as_the_recorded_step():
    stages = html.render(INPUT_BOUND).split('<ul class="stages">')[1].split("</ul>")[0]
    widths = [int(width) for width in re.findall(r"flex:(\d+) 0 0", stages)]
    assert len(widths) == 9
    assert [sum(widths[row : row + 3]) for row in (0, 3, 6)] == [INPUT_BOUND.prediction.recorded_ns] * 3
    assert widths[::3] == [701_000_000, 270_000_000, 252_000_000]


def test_the_stages_stand_before_the_findings_and_link_to_them():
    for diagnosis, heading in (
        (ASKED, "What if: fixed one after the other"),
        (INPUT_BOUND, "Fixed one after the other"),
    ):
        text = html.render(diagnosis)
        assert text.index(f"<h2>{heading}</h2>") < text.index("<h2>2 findings</h2>")
    assert '<a href="#finding-1">input-wait</a>' in html.render(INPUT_BOUND)
    assert "one after the other</h2>" not in html.render(COMMUNICATION)


def test_a_page_of_ops_without_lines_of_code_says_how_to_record_them():
    column = TableColumn("op", "text", ["aten::mm"])
    ops, lines = (Table("ops", name, name, (column,), 1) for name in ("ops", "lines"))
    assert "that py-spy names your own lines" in html.render(INPUT_BOUND, Views(tables=(ops,)))
    assert "perfdoctor run --stacks" not in html.render(INPUT_BOUND, Views(tables=(lines, ops)))


def test_the_first_screen_says_the_step_now_and_then():
    texts = Page(html.render(INPUT_BOUND)).texts
    facts = dict(zip(texts["dt"], (text for text in texts["dd"] if text), strict=False))
    assert {"Step now", "After the fixes", "GPU", "Ranks", "Steps analysed", "Confidence"} <= set(facts)


def test_a_second_recording_is_compared_with_the_same_batch():
    said = first_screen.check(INPUT_BOUND, INPUT_BOUND.findings[0])
    assert " With the same batch, a step should take about " in said
    assert " The same recording should take about " in first_screen.check(NO_STEPS, NO_STEPS.findings[0])


@pytest.mark.chromium
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
def test_a_browser_shows_the_poisoned_page_as_text(tmp_path):
    path = tmp_path / "report.html"
    path.write_text(html.render(POISONED), "utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [CHROMIUM, *flags, "--dump-dom", profile, path.as_uri()]
    dom = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout.decode()
    page = Page(dom)
    assert {tag for tag, _ in page.tags} <= ALLOWED
    assert "<img src=x onerror=alert(1)>" in "".join(page.texts["h1"])
    assert json.loads(page.texts["script"][0])["format"] == 1


def test_the_address_of_a_long_reference_is_whole():
    address = "https://docs.pytorch.org/docs/stable/notes/" + "numerical_accuracy-" * 8 + "#tf32"
    (first, *others) = INPUT_BOUND.findings
    page = html.render(replace(INPUT_BOUND, findings=(replace(first, references=(address,)), *others)))
    assert f'<a href="{address}"' in page
