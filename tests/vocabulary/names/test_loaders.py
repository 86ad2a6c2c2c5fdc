"""Are loaders, and the wait for them, known by their names?"""

from __future__ import annotations

import pytest

from perfdoctor.vocabulary.names import loaders


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        (loaders.INPUT_WAIT, ["enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "next_batch", "data loading", "IteratorGetNext"], ["forward", "metadata loading time"]),
        (loaders.INPUT_WAIT_FUNCTION, ["torch/utils/data/dataloader.py(630): __next__", "ffcv/loader/loader.py(1): __next__"], ["torch/utils/data/dataset.py(3): __getitem__"]),
        (loaders.SINGLE_PROCESS, ["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"], ["_MultiProcessingDataLoaderIter"]),
        (loaders.WORKERS, ["_MultiProcessingDataLoaderIter"], ["_SingleProcessDataLoaderIter"]),
        (loaders.LOADER_BEGINS, ["torch/utils/data/dataloader.py(439): _get_iterator"], ["torch/utils/data/dataloader.py(630): __next__"]),
        (loaders.PROCESS_STARTS, ["multiprocessing/process.py(110): start"], ["multiprocessing/process.py(140): join"]),
        (loaders.LOADER_KERNEL, ["void dali::kernels::SliceFlipNormalize(int)", "nvjpegDecode"], ["void at::native::copy(int)"]),
    ],
)  # fmt: skip
def test_names_are_distinguished(pattern, names, others):
    assert all(pattern.search(name) for name in names)
    assert not any(pattern.search(name) for name in others)
