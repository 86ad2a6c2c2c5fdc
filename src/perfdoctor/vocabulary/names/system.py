"""What does the process ask of the operating system, of MPI and of Python's memory? Files, waits, garbage collection.

Calls of the operating system and of MPI are named as Nsight Systems traces them (`--trace=osrt,mpi`).
"""

from __future__ import annotations

import re

from perfdoctor.patterns import regex

FILE_CALL = regex(
    r"^(p?read|p?write|p?readv|p?writev|open|openat|fopen|fread|fwrite|fflush|fsync|fdatasync|msync|ftruncate|rename|unlink"
    r"|sendfile|close|fclose|f?stat)(64)?(_unlocked)?$"
)
#: Those of them that only read: modules, code and data at a program's start are read once.
READ_CALL = regex(r"^(p?read|p?readv|open|openat|fopen|fread|close|fclose|f?stat)(64)?(_unlocked)?$")
#: A process starts another one (a compiler, most often), and these two ends of it: reads between them are of its pipe.
CHILD = tuple(map(regex, (r"^(pipe2?|v?fork|posix_spawnp?|clone3?|popen)$", r"^(wait(pid|id|3|4)?|pclose)$")))
#: Calls of MPI in which the host waits for other ranks (MPI 4.1).
MPI_WAIT = regex(
    r"^MPI_(S?Send|Recv|Wait|Barrier|Bcast|(All|Neighbor_)?(reduce|gather|toall)|Reduce|Gather|Scatter|Probe)",
    re.IGNORECASE,
)
#: CPython's garbage collector: torch.profiler's "Python GC" (`record_python_gc_info`), the agent's `gc_gen2`, and what
#: people call a range around `gc.collect`.
GARBAGE_COLLECTION = regex(r"garbage|\bgc\.collect\b|\bpython gc\b|\bgc(_gen\d)?\b", re.IGNORECASE)
#: The same as torch.profiler's stacks name built-in functions.
GARBAGE_COLLECTION_FUNCTION = regex(r"<built-in function collect>|<built-in method collect of module")
