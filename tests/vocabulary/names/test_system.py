"""Are calls of the system, of MPI and of the garbage collector known by their names?"""

from __future__ import annotations

import pytest

from perfdoctor.vocabulary.names import system


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        (system.FILE_CALL, ["pwrite64", "fsync", "fwrite_unlocked"], ["poll", "pthread_cond_wait", "readdir"]),
        (system.MPI_WAIT, ["MPI_Allreduce", "MPI_Waitall", "MPI_Sendrecv"], ["MPI_Isend", "my MPI_Wait"]),
        (system.GARBAGE_COLLECTION, ["gc_gen2", "Python GC", "garbage collection"], ["gcc", "gc_general"]),
        (system.GARBAGE_COLLECTION_FUNCTION, ["<built-in function collect>"], ["train.py(3): collect"]),
    ],
)  # fmt: skip
def test_names_are_distinguished(pattern, names, others):
    assert all(pattern.search(name) for name in names)
    assert not any(pattern.search(name) for name in others)
