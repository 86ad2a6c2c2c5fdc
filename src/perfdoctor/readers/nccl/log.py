"""Which connections, networks and algorithms did NCCL choose? Read from its output with NCCL_DEBUG=INFO.

A line is `host:pid:tid [device] NCCL INFO text`, possibly behind a launcher's prefix or directly behind other output.
Its ranks are those of one of the job's communicators: they are kept as members, and a process is identified by its host
and pid. Names of hosts are not kept: a host is a number made of its name, the same in the logs of all ranks, until
`job` numbers the hosts of all logs.

Facts (`nccl_facts.name`): version, members, machines, device, network, plugin_failed, no_verbs, no_infiniband, nic,
environment, topology_file, gpudirect, ring_gdr, nvlink, pci, channels, nvls_channels, graph, tuned, algorithm,
peer_access, warning, returned, communicator, collective, callers, process.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path, PurePosixPath

from msgspec import Struct, field

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Source, Timeline
from perfdoctor.patterns import regex
from perfdoctor.readers import text_rows
from perfdoctor.readers.nccl import nccl_tests
from perfdoctor.vocabulary.names.nccl import IN_PARTS

_LINE = regex(
    # Bounded, or a long line without a colon would be scanned from each of its characters.
    r"(?P<host>[A-Za-z0-9][\w.\-]{0,99}):(?P<pid>\d{1,18}):\d{1,18} \[(?P<device>-?\d{1,9})\]"
    r"(?: (?P<where>[\w./\-]{1,200}:\d+))? "
    r"NCCL (?P<level>INFO|WARN|ERROR|TRACE|VERSION) ?"
)
_VERSION = regex(r"NCCL version (\d+\.\d+\.\d+\S*)")
_WAY = regex(
    r"(?:Channel|Ring) (?P<channel>\d{1,9})(?:/\d+)? : (?P<member>\d{1,9})(?:\[\w+\])? -> (?P<peer>\d{1,9})(?:\[\w+\])?"
    r"(?: \[(?P<direction>send|receive)\])?"
    # The name of a network's plugin may have blanks: NET/AWS Libfabric/0/GDRDMA.
    r" via (?P<way>NET/[^/:]{1,60}/\S+|\S+(?: pointer(?:/\w+)*)?)"
)
_NIC = regex(r"\[(\d+)\]([\w.\-]+):\d+/(\w+)")
_DIGITS = regex(r"\d+")
#: With NCCL_DEBUG_SUBSYS=COLL.
_CALL = regex(
    r"(\w+): opCount \w+ sendbuff \S+ recvbuff \S+ count (\d{1,18}) datatype (\d{1,3}) op \d+ root -?\d+ comm \w+"
    r" \[nranks=(\d{1,9})\]"
)
#: Messages that are kept as text are cut at this length.
_LONGEST = 160

_Fact = tuple[str, str, float]
_NAN = float("nan")


def _basename(text: str) -> str:
    """The file of a path, without its folders: these may name users and machines."""
    return PurePosixPath(text.strip()).name if "/" in text else text.strip()


#: Bytes of an element, by the number of its type (ncclDataType_t in nccl.h).
_ELEMENT_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)


def _collective(found: re.Match[str]) -> _Fact:
    """Its kind and number of ranks, and the bytes of the message as nccl-tests count them; NaN of an unknown type."""
    kind, elements, number, ranks = found[1][:20], int(found[2]), int(found[3]), int(found[4])
    element = _ELEMENT_BYTES[number] if number < len(_ELEMENT_BYTES) else _NAN
    parts = ranks if IN_PARTS.match(f"nccl{kind}") else 1
    return "collective", f"{kind} of {ranks}", float(elements * element * parts)


#: Pattern of a message → the fact in it. The first match counts.
_FACTS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], _Fact]], ...] = tuple(
    (regex(pattern), fact)
    for pattern, fact in (
        (_CALL.pattern, _collective),
        (_VERSION.pattern, lambda m: ("version", m.group(1)[:40], _NAN)),
        (r"Using network (\S.*)", lambda m: ("network", m.group(1).strip()[:40], _NAN)),
        (r"(NCCL_\w+) set (?:by environment )?to (.*)", lambda m: (
            "environment", f"{m.group(1)}={_basename(m.group(2))}"[:_LONGEST], _NAN)),
        # The driver's number of the GPU; CUDA's is another where CUDA_VISIBLE_DEVICES hides some.
        (r"(?:ncclCommInitRank\w*|Init) .*?nranks \d+(?: cudaDev \d+)?(?: nvmlDev (\d+))? busId (\w+)", lambda m: (
            "device", m.group(2), float(m.group(1) or "nan"))),
        (r"comm 0x\w+ rank \d+ nRanks (\d+) nNodes (\d+)", lambda m: ("machines", m.group(1), float(m.group(2)))),
        (r"NET/Plugin ?: ?.*(undefined symbol|cannot open shared object file|[Ff]ailed to (?:load|init))",
         lambda m: ("plugin_failed", m.group(1), _NAN)),
        (r"Failed to open libibverbs", lambda m: ("no_verbs", m.group(), _NAN)),
        (r"NET/IB ?: ?(No device) found", lambda m: ("no_infiniband", m.group(1), _NAN)),
        (r"Loading topology file (\S+)", lambda m: ("topology_file", _basename(m.group(1))[:_LONGEST], _NAN)),
        (r"GPU Direct RDMA (Disabled|Enabled) for HCA (\d+)", lambda m: (
            "gpudirect", m.group(2), float(m.group(1) == "Enabled"))),
        (r"Connected all rings.*\bGDR (\d)", lambda m: ("ring_gdr", "", float(m.group(1)))),
        (r"\+ (NVL|PCI)\[(\d+\.\d+)\] - GPU", lambda m: (
            {"NVL": "nvlink", "PCI": "pci"}[m.group(1)], m.group(1), float(m.group(2)))),
        (r"Pattern (\d+), crossNic \d+, nChannels (\d+), (?:bw|speed) (\d+\.\d+)/(\d+\.\d+), type (\S+?),", lambda m: (
            "graph", f"{m.group(1)} {m.group(5)}", float(m.group(2)) * min(float(m.group(3)), float(m.group(4))))),
        (r"(\d+) coll channels", lambda m: ("channels", "", float(m.group(1)))),
        (r"(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+)", lambda m: (
            "algorithm", f"{m.group(1)} {m.group(3)}/{m.group(4)}"[:60], float(m.group(2)))),
        (r"Check P2P Type (?:intraNodeP2pSupport|isAllDirectP2p) (\d)", lambda m: (
            "peer_access", "", float(m.group(1)))),
        (r"(?:\S*/)?([\w.]+\.(?:cc|cu|c|h)):\d+ -> (\d+)", lambda m: ("returned", m.group(1)[:40], float(m.group(2)))),
    )
)  # fmt: skip
#: Messages that may contain a fact. Most of a log does not match, and is skipped at once.
_MAY_HAVE_FACT = regex(
    r"NCCL version|Using|NCCL_\w+ set|n[rR]anks \d|Plugin|libibverbs|No device|topology file|Direct RDMA|all rings|"
    r"\] - GPU|Pattern \d|opCount|coll channels|-> Algo|P2P Type|\.(?:cc|cu|c|h):\d+ ->| via |"
    r"Reduce |Gather |ReduceScatter "
)
_MEMBERS = regex(r"n[rR]anks (\d+)")
#: A communicator that a rank builds: where it is in the process, and its number in the job, which older versions lack.
_BUILDS = regex(r"comm (0x\w{1,16}) rank \d+ nranks (\d{1,9})\b(?:.* commId (0x\w{1,16}))?.*Init (?:START|COMPLETE)")
_CALLER = regex(r" comm (0x\w{1,16}) ")
_NVLS = regex(r"(\d+) nvls channels")
_TUNED = regex(r"\s*(AllReduce|AllGather|ReduceScatter) \|")
_LATENCY_BANDWIDTH = regex(r"\d+\.\d+/\s*(\d+\.\d+)")


class _Log(Struct):
    """`ways`: the channels by host, process, device, member, peer, direction and way; `facts`: how often each occurred.

    `hosts`: their numbers by name. `silent`: processes with lines without facts. `members`: size of the communicator
    that a process builds on a device. `communicators`: number in the job ("" if unknown) and size of each that a
    process has. `callers`: of each kind of collective the communicators on which it was called.
    """

    ways: dict[tuple[int, int, int, int, int, str, str], set[int]] = field(default_factory=dict)
    facts: Counter[tuple[int, int, int, str, str, float]] = field(default_factory=Counter)
    hosts: dict[str, int] = field(default_factory=dict)
    silent: set[tuple[int, int]] = field(default_factory=set)
    members: dict[tuple[int, int, int], str] = field(default_factory=dict)
    communicators: dict[tuple[tuple[int, int, int], str], tuple[str, int]] = field(default_factory=dict)
    callers: dict[tuple[tuple[int, int, int], str], set[str]] = field(default_factory=dict)
    lines: int = 0

    def add(self, where: tuple[int, int, int], fact: _Fact) -> None:
        self.facts[where + fact] += 1

    def host(self, name: str, *, is_glued: bool) -> int:
        """The number of a host. If the line directly follows other output, `name` may begin with a piece of that."""
        if is_glued and name not in self.hosts:
            known = [each for each in self.hosts if name.endswith(each)]
            if known:
                return self.hosts[max(known, key=len)]
        return self.hosts.setdefault(name, int.from_bytes(blake2b(name.encode(), digest_size=6).digest(), "big"))

    def all_facts(self) -> Mapping[tuple[int, int, int, str, str, float], int]:
        """How often each fact occurred, those included that only all lines of a process show."""
        found = Counter(self.facts)
        built = ((*where, "communicator", *which) for (where, _), which in self.communicators.items())
        called = ((*where, "callers", kind, float(len(each))) for (where, kind), each in self.callers.items())
        found.update((*built, *called))
        known = {key[:2] for key in (*found, *self.ways)}
        for host, process in self.silent - known:
            found[host, process, -1, "process", "", _NAN] += 1
        return found


def looks_like(head: bytes) -> bool:
    """Do these first bytes contain lines of NCCL? The first one may come later: see `is_log`."""
    if b"NCCL " not in head:
        return False
    text = head.decode("utf-8", "replace")
    return _LINE.search(text) is not None or _VERSION.search(text) is not None


def is_log(path: Path, head: bytes) -> bool:
    """Is it a text file with a line of NCCL anywhere? Read up to that line; binary files are not read."""
    if looks_like(head):
        return True
    if b"\0" in head or not head.strip() or text_rows.is_json(head):
        return False
    try:
        return any("NCCL " in line and _LINE.search(line) for line in text_rows.lines(path))
    except PerfdoctorError:
        return False


def read(path: Path) -> Timeline:
    """The ways and facts in the log, and the tables of nccl-tests if it contains some.

    PerfdoctorError where it cannot be read or holds no line of NCCL.
    """
    log, tables = _Log(), nccl_tests.NcclTestTables()
    for line in text_rows.lines(path):
        _take(line, log, tables)
    tables.close()
    if not log.lines:
        raise PerfdoctorError(f"{path.name} holds no line of NCCL", do="Run with NCCL_DEBUG=INFO.")
    if not (log.hosts or tables.rows):
        raise PerfdoctorError(f"{path.name} holds the version of NCCL and nothing else", do="Run with NCCL_DEBUG=INFO.")
    of_process, of_fact = ("host", "process", "device"), ("name", "value", "amount")
    ways = (
        {**dict(zip((*of_process, "member", "peer", "direction", "name"), way, strict=True)), "channels": len(channels)}
        for way, channels in log.ways.items()
    )
    facts = (
        {**dict(zip((*of_process, *of_fact), fact, strict=True)), "count": count}
        for fact, count in log.all_facts().items()
    )
    frames = {
        "transports": text_rows.frame("transports", ways),
        "nccl_facts": text_rows.frame("nccl_facts", facts),
        "link_tests": text_rows.frame("link_tests", tables.rows),
    }
    recorded = {"transports", "nccl_facts"} | ({"link_tests"} if tables.rows else set())
    version = next((value for _, _, _, name, value, _ in log.facts if name == "version"), "")
    return Timeline.build(
        frames,
        recorded,
        sources=[Source("nccl", path.name, version)],
        notes=list(nccl_tests.notes(path.name, tables)),
    )


def _take(line: str, log: _Log, tables: nccl_tests.NcclTestTables) -> None:
    messages = _messages(line)
    before = line[: messages[0].start()] if messages else line
    if not messages and (version := _VERSION.search(line)):  # printed by the library itself, without a prefix
        log.lines += 1
        log.facts[-1, -1, -1, "version", version.group(1)[:40], _NAN] += 1
        return
    if before.strip():
        # Digits in front of a host's name may be the end of a table's row.
        tail = _DIGITS.match(messages[0].group("host")) if messages else None
        tables.take(before + (tail.group() if tail else ""))
    elif messages and line[:1].isdecimal() and (tail := _DIGITS.match(line)):
        tables.take(tail.group())
    for number, message in enumerate(messages):
        end = messages[number + 1].start() if number + 1 < len(messages) else len(line)
        _message(message, line[message.end() : end], log, is_glued=message.start() > 0)


def _messages(line: str) -> list[re.Match[str]]:
    """A line's messages: nearly always one, at its beginning. A search for more in each takes three times as long."""
    first = _LINE.match(line)
    if first and line.find("NCCL ", first.end()) < 0:
        return [first]
    return list(_LINE.finditer(line)) if "NCCL " in line else []


def _message(message: re.Match[str], text: str, log: _Log, *, is_glued: bool) -> None:
    """Add what one message says. `is_glued`: it follows other output without a break."""
    log.lines += 1
    host = log.host(message.group("host"), is_glued=is_glued)
    if message.group("level") == "INFO" and not _MAY_HAVE_FACT.search(text):
        log.silent.add((host, int(message.group("pid"))))
        return
    where = host, int(message.group("pid")), int(message.group("device"))
    if way := _WAY.search(text):
        pair = int(way.group("member")), int(way.group("peer")), way.group("direction") or "", way.group("way")[:60]
        log.ways.setdefault(where + pair, set()).add(int(way.group("channel")))
        return
    if message.group("level") in ("WARN", "ERROR"):
        known = next((fact(found) for pattern, fact in _FACTS if (found := pattern.search(text))), None)
        if known is None or known[0] == "returned":
            known = "warning", text.strip()[:_LONGEST], _NAN
        log.add(where, known)
        return
    if text.lstrip().startswith("NET/IB") and " Using " in text:
        for index, name, _ in _NIC.findall(text):
            log.add(where, ("nic", name, float(index)))
        return
    for pattern, fact in _FACTS:
        if found := pattern.search(text):
            name, value, amount = fact(found)
            of = f" of {log.members[where]}" if name == "graph" and where in log.members else ""
            log.add(where, (name, value + of, amount))
            if name == "collective" and (caller := _CALLER.search(text)):
                # A line's device is the thread's, which may be another than the communicator's.
                log.callers.setdefault(((*where[:2], -1), value), set()).add(caller[1])
            break
    if builds := _BUILDS.search(text):
        before = log.communicators.get((where, builds[1]), ("", 0))[0]
        log.communicators[where, builds[1]] = builds[3] or before, int(builds[2])
    if members := _MEMBERS.search(text):
        log.members[where] = members.group(1)
        log.add(where, ("members", "", float(members.group(1))))
    elif nvls := _NVLS.search(text):
        log.add(where, ("nvls_channels", "", float(nvls.group(1))))
    elif tuned := _TUNED.match(text):
        best = max((float(each) for each in _LATENCY_BANDWIDTH.findall(text)), default=0.0)
        log.add(where, ("tuned", tuned.group(1), best))
