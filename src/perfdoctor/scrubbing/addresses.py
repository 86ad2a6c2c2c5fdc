"""Which addresses of networks, people and GPUs stand in a text, and what stands there in a copy?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv6Address

from perfdoctor.patterns import regex
from perfdoctor.scrubbing.stand_ins import StandIns

_ADDRESS = regex(r"\b([a-z][a-z0-9+.-]{1,15})://([^\s\"'<>|,;)\]}]+)", re.IGNORECASE)
#: What git and scp write behind a host: `git@github.com:acme/model.git`. It says as much as an address of the web.
_PATH = r"(:(?:[\w.~+-]{1,100}/){1,20}[\w.~+-]{1,100}|:[\w.~+-]{1,100}\.git\b)?"
_MAIL = regex(rf"(?<![\w@/])([\w.+-]{{1,64}}@[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{0,4}}\.[A-Za-z]{{2,}})\b{_PATH}")
_AT_HOST = regex(rf"(?<![\w@/.:])([A-Za-z][\w.-]{{1,31}})@([A-Za-z][\w.-]{{2,253}})(?=:|$|\s)(?!:\w+:){_PATH}")
_IP = regex(r"(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)")
#: What may be one, also behind the name of an interface, as NCCL writes it: `eth0:2a02::1`.
_IP6 = regex(
    r"(?<![\w:.])([A-Za-z][A-Za-z0-9_.-]{1,14}:)?((?:[0-9a-f]{0,4}:){2,7}(?:(?:\d{1,3}\.){3}\d{1,3}|[0-9a-f]{1,4})?)"
    r"(?:%\w{1,15})?(?![\w:]|\.\d)",
    re.IGNORECASE,
)
_GROUPS = 8
_MAC = regex(r"(?<![\w:])(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?![\w:])", re.IGNORECASE)
_GPU = regex(r"\b(GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{27}(?:/\d+/\d+)?", re.IGNORECASE)
#: Addresses of nobody (RFC 5737).
_NOBODYS = ("192.0.2", "198.51.100", "203.0.113")
_COLONS, _POINTS = regex(r"[0-9A-Fa-f]:[0-9A-Fa-f:]"), regex(r"\d\.\d{1,3}\.")


class Addresses:
    """The addresses of one copy. `public`: those that stay. `hosts`, `users`: names that become known meanwhile."""

    def __init__(self, stand_ins: StandIns, public: frozenset[str], hosts: set[str], users: set[str]) -> None:
        self.stand_ins = stand_ins
        self._public = public
        self._hosts = hosts
        self._users = users

    def replaced(self, text: str) -> str:
        """The text with a stand-in for every address."""
        if "://" in text:
            text = _ADDRESS.sub(self._of_address, text)
        if "@" in text:
            text = _AT_HOST.sub(self._of_user_at_host, _MAIL.sub(self._of_mail, text))
        if _COLONS.search(text):
            text = _MAC.sub(lambda found: self.stand_ins.of("address", found[0]), text)
            text = _IP6.sub(self._of_ip6, text)
        if _POINTS.search(text):
            text = _IP.sub(self._of_ip, text)
        if "-" not in text:
            return text
        return _GPU.sub(
            lambda found: f"{found[1]}-{self.stand_ins.number('gpu', found[0]):08x}-" + "0000-" * 3 + "0" * 12, text
        )

    def _of_address(self, found: re.Match[str]) -> str:
        """Addresses that perfdoctor's own rules cite stay."""
        if found[0].rstrip(".") in self._public or self.stand_ins.is_one(found[2]):
            return found[0]
        return f"{found[1]}://{self.stand_ins.of('address', found[2])}"

    def _of_mail(self, found: re.Match[str]) -> str:
        return f"{self.stand_ins.of('user', found[1])}@host{self._behind(found[0], found[2])}"

    def _of_user_at_host(self, found: re.Match[str]) -> str:
        user, host = found[1], found[2]
        is_host = host in self._hosts
        shown_user = self.stand_ins.of("user", user) if user in self._users else user
        shown_host = self.stand_ins.of("host", machine(host)) if is_host else host
        behind = self._behind(found[0], found[3]) if is_host else found[3] or ""
        return f"{shown_user}@{shown_host}{behind}"

    def _behind(self, whole: str, path: str | None) -> str:
        """What stands for the path behind a host."""
        return f":{self.stand_ins.of('address', whole)}" if path else ""

    def _of_ip(self, found: re.Match[str]) -> str:
        numbers = [int(each) for each in found[0].split(".")]
        if max(numbers) > 255 or numbers[0] in (0, 127) or found[0].rpartition(".")[0] in _NOBODYS:
            return found[0]
        number = self.stand_ins.number("address", found[0]) - 1
        return f"{_NOBODYS[number // 254 % len(_NOBODYS)]}.{number % 254 + 1}"

    def _of_ip6(self, found: re.Match[str]) -> str:
        interface, address = found[1] or "", found[2]
        if interface and _is_ip6(interface + address):
            interface, address = "", interface + address
        return interface + self.stand_ins.of("address", address.lower()) if _is_ip6(address) else found[0]


def users_at_hosts(text: str) -> Iterator[tuple[str, str]]:
    """Yield users and hosts, but for addresses of mail."""
    for user, host, _ in _AT_HOST.findall(text) if "@" in text else ():
        if _MAIL.fullmatch(f"{user}@{host}") is None:
            yield user, host


def machine(host: str) -> str:
    """Return a host's short name, which is the same whether or not a domain is given with it."""
    return host.partition(".")[0]


def _is_ip6(text: str) -> bool:
    """Is it an address of somebody? Names of C++ are written like those that nobody has been given: `c10::add`."""
    with suppress(ValueError):
        address = IPv6Address(text)
        if address.is_loopback or address.is_unspecified or "." in text:  # whose numbers are those of an `_IP`
            return False
        return not address.is_reserved or address.ipv4_mapped is not None or text.count(":") == _GROUPS - 1
    return False
