"""What happened when, on which rank, device and thread?

numpy is loaded here, before any module asks for it. Its OpenBLAS starts a thread for every core, and each of them spins
for some 30 ms before it sleeps. Nothing here multiplies matrices that are large enough for a second thread. Who set the
number of threads keeps it, and programs that we start see no difference.
"""

from __future__ import annotations

import os

_THREADS = "OPENBLAS_NUM_THREADS"

if _THREADS not in os.environ:
    os.environ[_THREADS] = "1"
    import numpy as np  # noqa: F401

    del os.environ[_THREADS]
