"""What a part that crashes, hangs or raises costs: itself."""

from __future__ import annotations

import os
import signal
import time
from functools import partial

from measuring_modules import apart


def send(*rows, emit):
    for row in rows:
        emit(row)


def raises(emit):
    emit({"what": "a"})
    raise ValueError("the first line\nthe second")


def crashes(emit):
    emit({"what": "a"})
    os.kill(os.getpid(), signal.SIGKILL)


def hangs(emit):
    emit({"what": "a"})
    time.sleep(1000)


def test_rows_arrive_in_the_order_of_the_processes():
    works = [lambda emit: send({"n": 1}, {"n": 2}, emit=emit), lambda emit: send({"n": 3}, emit=emit)]
    assert apart.rows_of(works, 30) == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_what_it_sent_before_an_error_is_kept():
    assert apart.rows_of([raises], 30) == [{"what": "a"}, {"what": "all", "error": "ValueError: the first line"}]


def test_a_crash_is_a_row():
    assert apart.rows_of([crashes], 30) == [{"what": "a"}, {"what": "all", "error": "it was ended by signal 9"}]


def test_what_hangs_is_ended():
    assert apart.rows_of([hangs], 0.3) == [{"what": "a"}, {"what": "all", "error": "it took too long, and was ended"}]


def test_the_others_are_ended_when_one_fails():
    rows = apart.rows_of([hangs, raises], 600)
    assert rows[-1] == {"what": "all", "error": "ValueError: the first line"}


def test_no_process_stays(monkeypatch):
    started = []
    fork = os.fork

    def counted():
        started.append(fork())
        return started[-1]

    monkeypatch.setattr(os, "fork", counted)
    apart.rows_of([hangs, crashes, raises], 5)
    assert len(started) == 3
    for pid in started:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue
        raise AssertionError(f"{pid} is still there")


def test_what_it_prints_does_not_reach_the_document(capfd):
    apart.rows_of([lambda emit: os.write(1, b"NCCL version 2.27\n") and emit({"n": 1})], 30)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "NCCL version" in printed.err


def test_one_part_that_fails_leaves_the_others():
    rows = []
    apart.tried(rows.append, {"what": "a"}, partial(int, "x"))
    apart.tried(rows.append, {"what": "b"}, lambda: {"median": 1})
    assert rows[0]["error"].startswith("ValueError: invalid literal")
    assert rows[1] == {"what": "b", "median": 1}
