"""The sampler of one pass: started before the program, asked by its agents, ended behind it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from perfdoctor.recording.sampling import stacks
from perfdoctor.recording.sampling.sampler import ENOUGH
from perfdoctor.recording.tools.py_spy import PySpy, explain
from perfdoctor.system import tool_process
from perfdoctor.system.processors import own_cores

#: What all samples of a machine may take of its cores that are ours. A training that leaves a core free is not slower
#: by more. One that keeps all busy waits for the thread that was held up: 3 to 5 % on two cores (docs/recording.md).
BUDGET_SHARE = 0.02
_ENDING_S = 15.0


class SamplerProcess:
    """The sampler, which waits for requests until `end`. What it wrote is there until `close`.

    `with_source`: the text of the lines is kept, too. Without it a notebook's code is not written anywhere.
    """

    def __init__(self, tool: PySpy, *, with_source: bool = True) -> None:
        self.tool, self.with_source = tool, with_source
        # Not in the run folder: py-spy's files are larger than what is kept, and the FIFO is nobody else's.
        self.folder = Path(tempfile.mkdtemp(prefix="perfdoctor-sampling-"))
        self.requests, self.held = self.folder / "requests", -1
        try:
            os.mkfifo(self.requests, 0o600)
            # Open from now on: who asks before the sampler has opened it, is heard.
            self.held = os.open(self.requests, os.O_RDONLY | os.O_NONBLOCK)
            self.process = self._started()
        except BaseException:
            self._let_go()
            self.close()
            raise

    def _started(self) -> subprocess.Popen[bytes]:
        words = [str(BUDGET_SHARE * own_cores()), self.tool.path]
        return subprocess.Popen(
            [*tool_process.own_command("perfdoctor.recording.sampling.sampler"), self.requests, self.folder, *words],
            cwd="/",  # the user's folder may be removed meanwhile
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,  # the terminal's Ctrl-C is for the training
            umask=0o077,  # who may only ask, finds no samples
        )  # fmt: skip

    @property
    def settings(self) -> dict[str, object]:
        """The settings of the agent's sampling, see agent/perfdoctor_agent/sampling.py."""
        return {
            "sampler": self.process.pid, "requests": str(self.requests), "ready": str(self.folder),
            "source": self.with_source,
        }  # fmt: skip

    def admit(self, user: int) -> None:
        """Let another user's program ask, to which root attaches.

        The folder stays ours: in one of theirs, links would lead the sampler's files elsewhere. So nothing is kept of a
        notebook's cells, which its own process writes there.
        """
        if user != os.geteuid():
            os.chown(self.requests, user, -1, follow_symlinks=False)
            self.folder.chmod(0o711)

    def end(self) -> None:
        """End what is still sampled, after the program. May be called again."""
        self._let_go()
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            if not self.process.stdin.closed:
                self.process.stdin.write(ENOUGH)
                self.process.stdin.close()
        try:
            self.process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _let_go(self) -> None:
        if self.held >= 0:
            os.close(self.held)
            self.held = -1

    def keep(self, target: Path, pass_name: str, project: Path) -> Iterator[str]:
        """Store what was sampled in the run folder. Yields notes on what was not."""
        tool = f"py-spy {self.tool.version}"
        for each in stacks.sampled(self.folder):
            name = f"{pass_name}-{each.pid}" if each.pid == each.of else f"{pass_name}-{each.of}-worker-{each.pid}"
            try:
                content = stacks.document(each, tool, project, with_source=self.with_source)
                if content is not None:
                    stacks.write(target, name, content)
            except (OSError, ValueError) as error:
                yield f"the stacks of process {each.pid} were not sampled: {explain(each.log) or error}"

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
