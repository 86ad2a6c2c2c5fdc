"""nccl-failures: errors that reached where communicators and collectives begin."""

from __future__ import annotations

from builders import findings, only_finding, summary
from machine_builders import beside, fact

WARNING = fact("warning", "Call to ibv_create_qp failed", count=2)
HANDED_UP = fact("returned", "init.cc", 2.0)


def test_it_fires_on_a_warning_that_ended_a_communicator():
    finding = only_finding("nccl-failures", beside(nccl_facts=[WARNING, HANDED_UP, fact("returned", "group.cc", 2.0)]))
    assert summary(finding) == (
        "NCCL failed 2 times in init.cc with an error of the system; it warned 2 times: Call to ibv_create_qp failed"
    )


def test_warnings_are_counted_over_all_processes():
    other = fact("warning", "Call to ibv_create_qp failed", process=2)
    finding = only_finding("nccl-failures", beside(nccl_facts=[WARNING, other, HANDED_UP]))
    assert finding.values["times"] == 3


def test_hostile_text_stays_text():
    finding = only_finding("nccl-failures", beside(nccl_facts=[fact("warning", "[red]%s</script>%(x)d"), HANDED_UP]))
    assert finding.values["warning"] == "[red]%s</script>%(x)d"


def test_it_stays_silent_on_sockets_that_close_at_the_end():
    closing = [fact("returned", "socket.cc", 3.0, count=283)]
    assert findings("nccl-failures", beside(nccl_facts=[WARNING, *closing])) == []


def test_it_stays_silent_where_something_is_missing_that_may_be():
    missing = fact("warning", "Failed to open libibverbs.so[.1]")
    assert findings("nccl-failures", beside(nccl_facts=[missing, HANDED_UP])) == []


def test_it_stays_silent_just_below_one_error():
    """7 is "in progress", and no error."""
    assert findings("nccl-failures", beside(nccl_facts=[WARNING, fact("returned", "init.cc", 7.0)])) == []
    assert len(findings("nccl-failures", beside(nccl_facts=[WARNING, fact("returned", "init.cc", 6.0)]))) == 1
