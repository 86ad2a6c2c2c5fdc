"""What in a text is private to a machine and its users, and what stands there in a copy?

First everything is read, `learn`: a name that one file gives away as a host's is one in all files. After `settle`
every text has its stand-ins, `text`. What is not known to be private stays: names of kernels, functions and ranges are
what a diagnosis is about.
"""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import filterfalse
from pathlib import Path

from perfdoctor.patterns import regex
from perfdoctor.scrubbing.addresses import Addresses, machine, users_at_hosts
from perfdoctor.scrubbing.known import IN_FILE_NAME, Known, any_of, searched
from perfdoctor.scrubbing.paths import Places
from perfdoctor.scrubbing.stand_ins import StandIns
from perfdoctor.system.masking import MASK, masked_command, masked_text, may_hold_secret

ENVIRONMENT, SECRETS = "environment variables", "secrets"
#: A text that is kept again for its many copies is no longer than this.
_KEPT_TEXTS, _LONGEST_KEPT = 1 << 17, 4096

#: `NAME=value` behind each other, as systems keep an environment and as nsys lists it.
_VARIABLE = regex(r"(?:(?<=[\0;\n])|^)\"?([A-Z_][A-Z0-9_]{0,127})=([^\0;\n]*)")
_FEWEST_VARIABLES = 3
_OF_USER = regex(r"(?:^|[\W_])(?:user(?:[_ ]?name)?|logname|login)$", re.IGNORECASE)
_OF_HOST = regex(
    r"(?:^|[\W_])(?:host|nodelist|master_addr|submit_host|rdzv_endpoint)$"
    r"|(?:host|node|machine|computer|display|container|pod)[_ ]?name$",
    re.IGNORECASE,
)
#: A member that holds a secret by its name. PWD is where a program was started.
_OF_SECRET = regex(
    r"secret|passw|passphrase|credential|(?:api|access|private|auth|account|encryption)[_-]?key"
    r"|(?:auth|access|refresh|session|security|identity|bearer|hf|api)[_-]?token"
    r"|^[A-Z0-9_]+_(?:KEY|TOKEN|PASS|PWD|AUTH|COOKIE|SIG)$"
    r"|^(?:authorization|(?:set-)?cookie|bearer|jwt|(?-i:[Pp]wd))$",
    re.IGNORECASE,
)
#: Words of recordings that are also names of secrets: what a member holds is one if it looks like one.
_MAY_BE_SECRET = regex(r"keys?|tokens?|pass|auth|sig(?:nature)?", re.IGNORECASE)
_RANDOM_DIGITS = regex(r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{20,}", re.IGNORECASE)
_RANDOM_LETTERS = regex(r"[\w+/=-]{8,}")
#: A private key with all its lines, also behind what a launcher writes in front of them; of one that breaks off, the
#: lines that are its own.
_PRIVATE_KEY = regex(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:[^-]|-(?!----)){0,20000}-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"|(?:\s{1,4}[A-Za-z0-9+/=]{20,200}(?=\s|\Z))*)"
)
#: `hostname: x`, `"node_name": "x"` and `hostname="x"` inside of a text.
_SAID = regex(
    r"(?<![A-Za-z0-9])((?:host|node|user|computer)[_ ]?name|logname)\"?\s{0,4}[=:]\s{0,4}\"?([\w.-]{2,253})",
    re.IGNORECASE,
)
#: `host : x` as a line of its own, also behind what a launcher writes in front of it: torchrun's table of failures.
_SAID_ALONE = regex(
    r"(?<=\n)(?:\d{1,5}:|\[[^\]\n]{1,40}\](?:<std\w{3}>)?:)?"
    r"[ \t]{0,8}(host|user)[ \t]{0,8}[=:][ \t]{0,4}\"?([\w.-]{2,253})\"?\s*?$",
    re.IGNORECASE | re.MULTILINE,
)
#: How NCCL begins its lines, also behind what a launcher writes in front of them, nccl-tests name a device, and
#: torch.profiler its files: host, process, moment.
_OF_NCCL = regex(
    r"(?:^|[\s:>\])])([A-Za-z0-9][\w.-]{1,252}):\d+:\d+ \[-?\d+\](?: [\w./-]{1,200}:\d+)? NCCL\b", re.MULTILINE
)
_OF_NCCL_TESTS = regex(r"Pid\s{1,8}\d+ on\s{1,80}([\w.-]{2,253})\s{1,8}device")
_OF_FILE = regex(r"^([A-Za-z0-9][\w.-]*)_\d+\.\d{6,}(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$")
_NAME = regex(r"(?=[\d.-]*[A-Za-z])[A-Za-z0-9][\w.-]*\d*(?:\[[\d,-]+\])?")
_LETTER = regex(r"[A-Za-z]")
#: Names of users and hosts that many machines share tell nothing, and are words of recordings.
_COMMON = frozenset((
    "root", "ubuntu", "user", "users", "admin", "data", "model", "models", "train", "training", "trainer", "test",
    "tests", "worker", "workers", "runner", "node", "host", "hostname", "localhost", "server", "gpu", "cuda",
    "nvidia", "python", "torch", "pytorch", "main", "default", "base", "local", "home", "work", "workspace",
    "project", "code", "src", "app", "run", "jupyter", "jovyan", "docker", "conda", "shared", "public", "adam",
    "adamw", "sgd", "max", "min", "mean", "sum", "conv", "linear", "relu", "step", "loss", "optimizer", "loader",
    "dataset", "batch", "forward", "backward", "debian", "centos", "opc", "ec2-user", "vagrant", "azureuser",
    "slurm", "mpi", "nccl", "master", "head", "login", "compute", "none", "null", "true", "false", "unknown",
    "rank", "device", "kernel", "stream", "thread", "process", "name", "cpu", "x86_64", "aarch64", "triton", "ampere",
    "volta", "turing", "hopper", "blackwell", "cutlass", "cublas", "cudnn", "aten", "cat", "dur", "pid", "tid", "args",
    "trace", "overhead", "attention", "tensor", "memory", "copy", "add", "mul",
))  # fmt: skip
_FEWEST_LETTERS = 3
_NUMBER = regex(r"[-+]?[\d.]+(?:[eE][-+]?\d+)?")


class Texts:
    """The texts of one copy. `keep_paths`: paths stay as they are, and with them what they tell."""

    def __init__(self, public: frozenset[str] = frozenset(), *, keep_paths: bool = False) -> None:
        self.stand_ins = StandIns()
        self.places = Places(self.stand_ins)
        self._keep_paths = keep_paths
        self._hosts: set[str] = set()
        self._glued: set[str] = set()
        self._users: set[str] = set()
        self._secrets: set[str] = set()
        self._files: dict[str, str] = {}
        self._host_in_name = self._nccl_pattern = self._user_in_name = any_of((), "", "")
        self._in_texts = self._in_keys = Known((), (), ())
        self._addresses = Addresses(self.stand_ins, public, self._hosts, self._users)
        self._known = lru_cache(_KEPT_TEXTS)(self._cleaned)
        self._learn_this_machine()

    # --- what is private? ---

    def learn(self, text: str, key: str = "") -> None:
        """Look at one text. `key`: what it is called where it stands, if it is called anything."""
        self._learn_value(key, text)
        for name in self.places.learn(text):
            self._add("user", name)
        if "NCCL" in text:
            self._glued.update(_OF_NCCL.findall(text))
        for name in _OF_NCCL_TESTS.findall(text) if " device" in text else ():
            self._add_host(name)
        for said, name in _SAID.findall(text) if "name" in text.lower() else ():
            self._learn_value(said, name)
        for said, name in _SAID_ALONE.findall(text) if "\n" in text else ():
            self._learn_value(said, name)
        for user, host in users_at_hosts(text):
            self._add("user", user)
            self._add_host(host)
        for name, value in variables(text):
            self._learn_variable(name, value)

    def learn_command(self, words: Sequence[str]) -> None:
        """Look at a command: what is the secret of an option there is one everywhere."""
        for word, shown in zip(words, masked_command(words), strict=True):
            if shown == MASK:
                self._add_secret(word)

    def learn_file(self, name: str) -> None:
        """Look at the name of a file."""
        if found := _OF_FILE.match(name):
            self._add_host(found[1])

    def settle(self) -> None:
        """All has been read: from now on texts are replaced."""
        self.places.settle()
        for name in sorted(self._glued, key=len):  # a line may stand directly behind other output
            if not name.endswith(tuple(self._hosts)):
                self._add_host(name)
        machines = {machine(name) for name in self._hosts}
        self.stand_ins.widths["host"] = len(str(len(machines)))
        self._host_in_name = any_of(self._hosts, *IN_FILE_NAME)
        self._nccl_pattern = any_of(self._hosts, "", r"(?=:\d+:\d+ \[)")
        self._user_in_name = any_of(self._users, *IN_FILE_NAME)
        self._in_texts = Known(self._hosts, self._users, self._secrets)
        self._in_keys = Known(*(filterfalse(str.isalpha, each) for each in (self._hosts, self._users, self._secrets)))

    def private(self) -> dict[bytes, re.Pattern[bytes]]:
        """What a copy must not hold, if it is too long to stand there by chance, and how it would stand there."""
        hosts, homes = ((), ()) if self._keep_paths else (self._hosts, self.places.private())
        return searched(hosts, self._secrets, homes)

    # --- what stands there instead? ---

    def text(self, text: str, key: str = "", *, is_key: bool = False) -> str:
        """The text with stand-ins, and "" for an environment.

        `is_key`: it is what a member is called, by which readers know it, whoever has the same name.
        """
        return (self._known if len(text) <= _LONGEST_KEPT else self._cleaned)(text, key, is_key)

    def file_name(self, name: str) -> str:
        """The name of a file or folder with stand-ins, which texts then call it by."""
        shown = self._host_in_name.sub(self._host, masked_word(name))
        shown = self._user_in_name.sub(lambda found: self.stand_ins.of("user", found[0]), shown)
        if shown != name:
            self._files[name] = shown
            self._known.cache_clear()
        return shown

    def without_private_keys(self, text: str) -> str:
        return _PRIVATE_KEY.sub(self._secret, text) if "PRIVATE KEY" in text else text

    def _cleaned(self, text: str, key: str, is_key: bool) -> str:
        known = self._in_keys if is_key else self._in_texts
        named = variables(text)
        if named:
            for name, _ in named:
                self.stand_ins.removed(ENVIRONMENT, name)
            return ""
        if key and (whole := self._of_key(key, text)) is not None:
            return whole
        for name, shown in self._files.items():
            text = text.replace(name, shown)
        text = known.secrets.sub(self._secret, text)
        text = self.without_private_keys(text)
        if may_hold_secret(text):
            text = "\n".join(map(self._line, text.split("\n")))
        text = self._addresses.replaced(text)
        if not self._keep_paths:
            text = self.places.replaced(text)
        text = known.hosts.sub(self._host, self._nccl_pattern.sub(self._host, text))
        return known.users.sub(lambda found: self.stand_ins.of("user", found[0]), text)

    def _of_key(self, key: str, text: str) -> str | None:
        """What stands for a text because of what it is called; None where that does not say."""
        if text in self._hosts and _OF_HOST.search(key):
            return self.stand_ins.of("host", machine(text))
        if _OF_USER.search(key) and text not in _COMMON and _NAME.fullmatch(text):
            return self.stand_ins.of("user", text)
        is_secret = holds_secret(key) or (_MAY_BE_SECRET.fullmatch(key) and _is_like_secret(text))
        if is_secret and len(text) > 1 and not self.stand_ins.is_one(text):
            self.stand_ins.removed(SECRETS, text)
            return MASK
        return None

    def _line(self, line: str) -> str:
        shown = masked_text(line)
        for word in set(line.split(" ")) - set(shown.split(" ")) if shown != line else ():
            self.stand_ins.removed(SECRETS, word)
        return shown

    def _host(self, found: re.Match[str]) -> str:
        return self.stand_ins.of("host", machine(found[0]))

    def _secret(self, found: re.Match[str]) -> str:
        self.stand_ins.removed(SECRETS, found[0])
        return MASK

    # --- learning ---

    def _learn_value(self, key: str, value: str) -> None:
        if not key or not _NAME.fullmatch(value):
            return
        if _OF_HOST.search(key):
            self._add_host(value)
        elif _OF_USER.search(key):
            self._add("user", value)

    def _learn_variable(self, name: str, value: str) -> None:
        if name == "HOME":
            self.places.add_home(value)
        elif holds_secret(name):
            self._add_secret(value)
        else:
            self._learn_value(name, value)

    def _learn_this_machine(self) -> None:
        with suppress(OSError):
            self._add_host(socket.gethostname())
        with suppress(OSError, KeyError, ImportError):
            self._add("user", getpass.getuser())
        with suppress(RuntimeError):
            self.places.add_home(str(Path.home()))

    def _add_secret(self, value: str) -> None:
        if len(value) > 5 and value.lower() not in _COMMON:
            self._secrets.add(value)

    def _add_host(self, name: str) -> None:
        """A host, by its whole name and by its first part. A moment and an address of numbers are none."""
        for each in (name, machine(name)):
            if _LETTER.search(each):
                self._add("host", each)

    def _add(self, kind: str, name: str) -> None:
        if len(name) >= _FEWEST_LETTERS and name.lower() not in _COMMON and not self.stand_ins.is_one(name, kind):
            (self._hosts if kind == "host" else self._users).add(name)


def variables(text: str) -> list[tuple[str, str]]:
    """Names and values of an environment that the text holds; none where it is another text."""
    if text.count("=") < _FEWEST_VARIABLES and "\0" not in text:
        return []
    found = [(name, value.strip('"')) for name, value in _VARIABLE.findall(text)]
    if "\0" in text:
        return found
    are_shapes = all(_NUMBER.fullmatch(value) and not holds_secret(name) for name, value in found)
    return [] if len(found) < _FEWEST_VARIABLES or are_shapes else found


def names_owner(key: str) -> bool:
    """Does a key say that its value is the name of a host or user, or a secret?"""
    named = any(expression.search(key) for expression in (_OF_HOST, _OF_USER, _OF_SECRET))
    return named or _MAY_BE_SECRET.fullmatch(key) is not None


def holds_secret(key: str) -> bool:
    """Is the value of this key a secret, whatever it looks like?"""
    return _OF_SECRET.search(key) is not None


def _is_like_secret(text: str) -> bool:
    """Is it as random as a secret? A value of `-p` is masked if it is."""
    is_random = _RANDOM_LETTERS.fullmatch(text) is not None and masked_command(["-p", text])[1] == MASK
    return is_random or _RANDOM_DIGITS.fullmatch(text) is not None


def masked_word(word: str) -> str:
    return masked_command([word])[0]
