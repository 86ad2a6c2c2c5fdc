"""Does `perfdoctor view` show the reports of a folder to whom it was told, and nothing else to nobody else?"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from folders import FIXTURES
from recorded import recording
from viewer.served import SECRET, Answer, ask, filled, served

from perfdoctor.cli import view
from perfdoctor.errors import PerfdoctorError
from perfdoctor.viewer.server import serving
from perfdoctor.watching import document
from perfdoctor.watching.anomalies import Anomaly
from perfdoctor.watching.document import Point, RankNow, WatchDocument
from perfdoctor.watching.windows import WindowState

FIXTURE = FIXTURES / "input-bound-workers" / "nsys" / "profile.sqlite"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("view"), FIXTURE)


@pytest.fixture(scope="module")
def server(root):
    with served(root) as running:
        yield running


def links(index: Answer, what: str) -> list[str]:
    return re.findall(rf'href="({what}/[0-9a-f]{{16}})"', index.text)


def test_the_list_has_verdict_step_and_date_of_each_report_and_what_lies_beside_it(server, root):
    index = ask(server, "")
    assert index.status == 200
    assert len(links(index, "report")) == 2
    assert "train/report.html" in index.text
    assert "Training waits for data (input-bound)" in index.text
    assert ">34.3 ms<" in index.text.replace("\u00a0", " ")
    assert re.search(r"<td>\d{4}-\d\d-\d\d \d\d:\d\d</td>", index.text)
    (json,), (trace,) = links(index, "json"), links(index, "perfetto")
    assert ask(server, json).body == (root / "train" / "diagnosis.json").read_bytes()
    assert ask(server, trace.replace("perfetto", "trace")).body == (root / "train" / "timeline.pftrace").read_bytes()
    bodies = {ask(server, each).body for each in links(index, "report")}
    assert bodies == {(root / name).read_bytes() for name in ("train/report.html", "sample.perfdoctor.html")}


def test_a_recording_without_a_report_has_its_command_and_others_files_are_not_listed(server, root):
    index = ask(server, "").text
    assert f"perfdoctor analyze &#39;{root}/rank 0.sqlite&#39;" in index
    assert "notes.html" not in index
    assert "settings.json" not in index


def test_a_report_hides_no_recording_of_the_same_name_in_another_folder(tmp_path, root):
    (source,) = recording(FIXTURE).diagnosis.sources
    for folder in ("a", "b", "c/torch"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / source.file).write_bytes(FIXTURE.read_bytes())
    report = (root / "train" / "report.html").read_bytes()
    for folder in ("a", "c"):
        (tmp_path / folder / "report.html").write_bytes(report)
    with served(tmp_path) as server:
        index = ask(server, "").text
    shown = [folder for folder in ("a", "b", "c/torch") if f"analyze {tmp_path}/{folder}/" in index]
    assert shown == ["b"]
    for folder in ("a", "c/torch"):
        (tmp_path / folder / source.file).unlink()
    with served(tmp_path) as server:
        assert "perfdoctor analyze" not in ask(server, "").text, "the only one of that name is that of the report"


def test_a_trace_opens_in_perfetto_at_the_moment_of_a_finding(server):
    (page,) = links(ask(server, ""), "perfetto")
    answer = ask(server, page)
    start, end = map(int, re.search(r"visStart=(\d+)&amp;visEnd=(\d+)", answer.text).groups())
    assert 0 <= start < end
    assert "1. input-wait" in answer.text
    assert "connect-src 'self'" in answer.headers["Content-Security-Policy"]
    assert "Cross-Origin-Opener-Policy" not in answer.headers, "Perfetto could not answer the page that opened it"


def test_a_new_report_is_there_when_the_page_is_loaded_again(tmp_path, root):
    (tmp_path / "new").mkdir()
    with served(tmp_path) as server:
        assert links(ask(server, ""), "report") == []
        (tmp_path / "new" / "a.html").write_bytes((root / "sample.perfdoctor.html").read_bytes())
        (found,) = links(ask(server, ""), "report")
        assert ask(server, found).status == 200
        (tmp_path / "new" / "a.html").unlink()
        assert ask(server, found).status == 404


HOSTILE = {
    "no token": "/",
    "no token, a page": "/report/0123456789abcdef",
    "another token": f"/{'A' * 43}/",
    "part of a path": "../secret.html",
    "encoded": "..%2f..%2fsecret.html",
    "encoded twice": "%252e%252e%252fsecret.html",
    "in the key": "report/../../secret.html",
    "in the key, encoded": "report/%2e%2e%2fsecret.html",
    "backslashes": "report\\..\\..\\secret.html",
    "an absolute path": "report//etc/passwd",
    "a file's name": "train/report.html",
    "another's file": "notes.html",
    "settings": "json/settings.json",
    "a key that is none": "report/zzzzzzzzzzzzzzzz",
    "a key that is nobody's": "report/0123456789abcdef",
    "too long a key": "report/" + "a" * 4000,
    "more behind it": "report/0123456789abcdef/x",
    "a NUL": "report/%00",
    "a query": "?file=../secret.html&x=%00",
}


@pytest.mark.parametrize("path", HOSTILE.values(), ids=HOSTILE)
def test_whatever_is_asked_nothing_else_is_served(server, path):
    answer = ask(server, path)
    assert answer.status in ((200,) if path.startswith("?") else (404,))
    assert SECRET not in answer.text
    assert "root:" not in answer.text
    if answer.status != 200:
        assert server.token not in answer.text


@pytest.mark.parametrize("kind", ["json", "trace", "perfetto"])
def test_a_key_of_one_kind_is_none_of_another(server, kind):
    report = links(ask(server, ""), "report")[0]
    assert ask(server, report.replace("report", kind)).status == 404


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:1",
        "127.0.0.1@evil.example",
        "",
        "[::1]",
        "0.0.0.0",
    ],
)
def test_a_name_that_only_resolves_to_this_machine_is_refused(server, host):
    answer = ask(server, "", Host=host)
    assert answer.status == 403
    assert server.token not in answer.text


@pytest.mark.parametrize("host", ["localhost", "localhost:9999", "127.0.0.1:80"])
def test_a_forwarded_port_is_this_machine(server, host):
    assert ask(server, "", Host=host).status == 200


def test_pages_of_other_sites_get_nothing_but_a_user_who_follows_a_link_does(server):
    assert ask(server, "", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status == 403
    assert ask(server, "", Sec_Fetch_Site="same-site", Sec_Fetch_Mode="cors").status == 403
    assert ask(server, "", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"])
def test_nothing_is_written(server, root, method):
    before = sorted(root.rglob("*"))
    assert ask(server, "", method).status == 501
    assert sorted(root.rglob("*")) == before


def test_a_head_has_no_body(server):
    answer = ask(server, "", "HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 0


def test_every_answer_forbids_frames_foreign_content_and_guessing(server):
    index = ask(server, "")
    every = [
        index,
        ask(server, "/"),
        *(ask(server, each) for each in (*links(index, "report"), *links(index, "perfetto"))),
    ]
    for answer in every:
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in answer.headers
    report = ask(server, links(index, "report")[0]).headers["Content-Security-Policy"]
    assert "sandbox allow-scripts" in report
    assert "allow-same-origin" not in report


@pytest.mark.parametrize(
    "raw",
    [b"GET / HTTP/9.9\r\n\r\n", b"\x00\xff\x00\r\n\r\n", b"GET\r\n\r\n", b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", b"GET //[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
     b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 500 + b"\r\n"],
    ids=["version", "binary", "short", "long", "two hosts", "no address", "many headers"],
)  # fmt: skip
def test_what_is_no_request_of_a_browser_gets_no_more_than_an_error(server, raw):
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
    assert b" 200 " not in answer
    assert server.token.encode() not in answer
    assert ask(server, "").status == 200


def test_links_out_of_the_folder_are_not_followed(tmp_path, root):
    inside = tmp_path / "inside"
    inside.mkdir()
    outside = root.parent / "secret.html"
    (inside / "link.html").symlink_to(outside)
    (inside / "folder").symlink_to(root.parent)
    (inside / "swapped.html").write_bytes((root / "sample.perfdoctor.html").read_bytes())
    (inside / "deep").mkdir()
    (inside / "deep" / "report.html").write_bytes((root / "sample.perfdoctor.html").read_bytes())
    with served(inside) as server:
        found = links(ask(server, ""), "report")
        assert len(found) == 2
        keys = {file.path.as_posix(): key for key, file in server.contents().files.items()}
        contents = server.contents()
        server.contents = lambda: contents  # the list as it was, and then the folder changes
        (inside / "swapped.html").unlink()
        (inside / "swapped.html").symlink_to(outside)
        (inside / "deep" / "report.html").rename(inside / "moved.html")
        (inside / "deep").rmdir()
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "report.html").write_text(SECRET, "utf-8")
        (inside / "deep").symlink_to(tmp_path / "other")
        for name in ("swapped.html", "deep/report.html"):
            answer = ask(server, f"report/{keys[name]}")
            assert answer.status == 404
            assert SECRET not in answer.text


def test_a_pipe_is_no_report_and_stops_nobody(tmp_path, root):
    os.mkfifo(tmp_path / "report.html")
    (tmp_path / "a.html").write_bytes((root / "sample.perfdoctor.html").read_bytes())
    with served(tmp_path) as server:
        assert len(links(ask(server, ""), "report")) == 1


def test_text_of_others_cannot_become_markup(tmp_path):
    name = "<img src=x onerror=alert(1)>.html"
    page = "<!doctype html>\n<!-- perfdoctor report 1 -->\n<title>&lt;script&gt;alert(2)&lt;/script&gt;\x1b[31m</title>"
    data = '<script type="application/json" id="diagnosis">{"run": {"steps": {"count": "x"}, "gpus": 3, "sources": []}}</script>'
    (tmp_path / name).write_text(page + data, "utf-8")
    (tmp_path / "';reboot;'.sqlite").write_bytes(FIXTURE.read_bytes())
    with served(tmp_path) as server:
        text = ask(server, "").text
    assert "<img" not in text
    assert "<script" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;alert(2)" in text


def test_of_too_many_files_it_is_said(tmp_path):
    for number in range(5):
        (tmp_path / f"{number}.txt").touch()
    with served(tmp_path, most=4) as server:
        assert "more than 4 files" in ask(server, "").text
    with served(tmp_path, most=5) as server:
        assert "more than" not in ask(server, "").text


def test_where_a_port_is_taken_the_next_one_is_used_and_one_that_was_asked_for_is_not_changed(tmp_path, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr("perfdoctor.viewer.server.FIRST_PORT", port)
        with serving(tmp_path, None) as server:
            assert port < server.server_port <= port + 20
        with pytest.raises(PerfdoctorError, match=f"port {port} can be used|port {port}"):
            serving(tmp_path, port)


def test_it_listens_to_this_machine_alone(server):
    assert server.server_address[0] == "127.0.0.1"
    assert len(server.token) >= 43


def test_over_ssh_it_says_how_to_forward_and_opens_no_browser(monkeypatch):
    monkeypatch.setattr(view.getpass, "getuser", lambda: "ada")
    over_ssh = {"SSH_CONNECTION": "10.0.0.9 5511 10.0.0.1 22", "DISPLAY": ":0"}
    assert view.forward_command(over_ssh, 8642) == "ssh -N -L 8642:127.0.0.1:8642 ada@10.0.0.1"
    assert "-p 2222" in view.forward_command({"SSH_CONNECTION": "10.0.0.9 5511 10.0.0.1 2222"}, 1)
    assert view.forward_command({}, 8642) == ""
    assert not view.has_browser(over_ssh)
    assert view.has_browser({"DISPLAY": ":0"}, "linux")
    assert not view.has_browser({}, "linux")


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_the_address_and_ends_when_it_is_asked_to(tmp_path, root, stop):
    opened = tmp_path / "opened"
    browser = tmp_path / "browser.sh"
    browser.write_text(
        f'#!/bin/sh\necho "$1" > {opened}\nstat -c %a "$(dirname "${{1#file://}}")" >> {opened}\n', "utf-8"
    )
    browser.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SSH")}
    environment |= {"DISPLAY": ":9", "BROWSER": str(browser), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "perfdoctor", "view", str(root), "--port", "0"]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=environment) as running:
        address = running.stdout.readline().strip()
        port, token = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/([\w-]{43,})/", address).groups()
        with socket.create_connection(("127.0.0.1", int(port)), timeout=30) as connection:
            connection.sendall(f"GET /{token}/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            assert b"200" in connection.recv(100)
        running.send_signal(stop)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 0, said
    assert "Traceback" not in said
    assert "Ctrl-C stops it" in said
    named, mode = opened.read_text("utf-8").split()
    assert token not in named, "other users see the arguments of programs"
    assert mode == "700"
    assert not Path(named.removeprefix("file://")).exists()


def test_a_training_under_watch_has_a_page_that_renews_itself(tmp_path: Path) -> None:
    anomaly = Anomaly("input", 5, 40, 1, rank=0, cause="input", values={"share": 0.5, "wait_ns": 2e6})
    window = WindowState(1, "input", 60, "diagnosed", "<b>Training waits</b>", "input-wait")
    curve = (Point(1, 1, 10**6, 2), Point(40, 1, 2 * 10**6, 3))
    rank = RankNow(0, 7, 50, 2 * 10**6, 0.5, 0.1, 1 << 30, 0, 1, False)
    known = WatchDocument(1, "running", 1, 1, ("train",), 2 * 10**6, (rank,), curve, (anomaly,), (window,))
    (tmp_path / "train").mkdir()
    document.write(tmp_path / "train", known)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "watch.json").write_text('{"format": "mine"}', "utf-8")
    with served(tmp_path) as server:
        addresses = re.findall(r'href="(watch/[0-9a-f]{16})"', ask(server, "").text)
        pages = {address: ask(server, address) for address in addresses}
    shown = next(page for page in pages.values() if page.status == 200)
    assert 'http-equiv="refresh"' in shown.text
    assert "input cannot keep up: 2.00 ms of a step, 50 %" in shown.text
    assert "&lt;b&gt;Training waits" in shown.text
    assert "<b>" not in shown.text
    assert 'points="25.0,100.0 1000.0,0.0"' in shown.text
    assert "default-src 'none'" in shown.headers["Content-Security-Policy"]
    assert all(page.status in (200, 404) for page in pages.values())
