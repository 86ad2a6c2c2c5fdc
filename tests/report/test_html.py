"""Is the page whole, quiet and deaf: does it load nothing and run nothing?"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from report.samples import ASKED, COMMUNICATION, INPUT_BOUND, POISONED, SAMPLES

from perfdoctor.report import html, json_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ALLOWED = {
    "a", "article", "b", "body", "caption", "code", "dd", "details", "div", "dl", "dt", "footer", "h1", "h2", "h3",
    "h4", "head", "header", "html", "i", "li", "link", "main", "meta", "p", "pre", "script", "section", "span", "style",
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
            assert attributes["href"].startswith(("https://", "http://", "data:,"))
        assert "url(" not in attributes.get("style", "")
    assert not re.search(r"url\(|@import|http", "".join(page.texts["style"]))
    policy = next(attributes["content"] for tag, attributes in page.tags if "http-equiv" in attributes)
    assert policy.startswith("default-src 'none'")


def test_the_only_script_is_data_and_says_what_the_json_report_says():
    page = Page(html.render(POISONED))
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "diagnosis"}]
    assert json.loads("".join(page.texts["script"])) == json.loads(json_report.render(POISONED))


def test_a_reference_that_is_no_web_address_is_no_link():
    links = {attributes["href"] for tag, attributes in Page(html.render(POISONED)).tags if tag == "a"}
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


def test_each_stop_of_the_way_is_as_wide_as_the_recorded_step():
    page = Page(html.render(INPUT_BOUND))
    tracks = [a["style"] for tag, a in page.tags if tag == "span" and a.get("style", "").startswith("flex:")]
    stops = [int(style.removeprefix("flex:").split()[0]) for style in tracks[-9:]]
    assert [sum(stops[row : row + 3]) for row in (0, 3, 6)] == [INPUT_BOUND.prediction.recorded_ns] * 3
    assert stops[::3] == [701_000_000, 270_000_000, 252_000_000]


def test_an_answer_stands_in_front_of_the_findings_and_a_prediction_behind():
    asked, predicted = html.render(ASKED), html.render(INPUT_BOUND)
    assert asked.index("<h2>What if: fixed one after the other</h2>") < asked.index("<h2>2 findings</h2>")
    assert predicted.index("<h2>Fixed one after the other</h2>") > predicted.index("<h2>2 findings</h2>")
    assert "one after the other</h2>" not in html.render(COMMUNICATION)


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
    assert json.loads("".join(page.texts["script"]))["format"] == 1
