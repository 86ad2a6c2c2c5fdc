"""Which loader is at work, and does the training wait for it? Names of PyTorch's, DALI's and others' loaders.

Of PyTorch's: torch/utils/data/dataloader.py (`enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__`).
"""

from __future__ import annotations

import re

from perfdoctor.patterns import regex

#: Ranges, ops and functions in which the training thread waits for its next batch, of any loader.
INPUT_WAIT = regex(
    r"enumerate\(DataLoader\)|enumerate\(DataPipe\)|(Single|Multi)Process\w{0,80}DataLoaderIter|loader\w{0,80}\.__next__"
    r"|\bdata[ _-]?(load|loading|loader|fetch|fetching|wait|iter|prefetch)\b"
    r"|\b(load|fetch|a?wait|get|next|read)[ _-](for[ _-])?(next[ _-])?(data|batch|sample|input)s?\b"
    r"|wait_for_batch|next_batch|batch_(load|fetch)|dataloader_next|fetch_next|input[ _-]pipeline|DALI\w{0,80}Iterator"
    r"|\bDali(Run|Pipeline|Executor)|IteratorGetNext|Iterator::GetNext",
    re.IGNORECASE,
)
#: The same as a Python stack shows it: PyTorch, DALI, FFCV, WebDataset, tf.data, Hugging Face datasets.
INPUT_WAIT_FUNCTION = regex(
    r"torch/utils/data/(dataloader|datapipes/.*)\.py\(\d+\): (__next__|_(next|get|try_get)_data|_get_iterator)"
    r"|nvidia/dali/(plugin/.*\.py\(\d+\): __next__|pipeline\.py\(\d+\): (run|share_outputs|outputs))"
    r"|ffcv/loader/\w+\.py\(\d+\): __next__|webdataset/\w+\.py\(\d+\): (__iter__|iterator|run)"
    r"|tensorflow/python/data/.*__next__|datasets/(iterable_dataset|arrow_dataset)\.py\(\d+\): (__iter__|__getitem__)"
)
#: PyTorch's own range, of either kind.
PYTORCH_NEXT = regex(r"^enumerate\(DataLoader\)#")
#: PyTorch's two kinds: batches are made in the training's own process, or by workers.
SINGLE_PROCESS = regex(r"SingleProcess\w*DataLoaderIter")
WORKERS = regex(r"MultiProcess\w*DataLoaderIter")
#: A loader that makes its iterator anew, and a worker process that is started.
LOADER_BEGINS = regex(r"torch/utils/data/dataloader\.py\(\d+\): _get_iterator")
#: Its workers are started: the iterator is made.
WORKERS_START = regex(r"torch/utils/data/dataloader\.py\(\d+\): (_get_iterator|__init__)")
#: The iterator is at its end: it waits until its workers have ended.
WORKERS_END = regex(r"torch/utils/data/dataloader\.py\(\d+\): _shutdown_workers")
PROCESS_STARTS = regex(r"multiprocessing/process\.py\(\d+\): start")
#: Kernels of libraries that decode and prepare data: DALI, nvJPEG, nvImageCodec, CV-CUDA.
LOADER_KERNEL = regex(r"\bdali::|\bnvjpeg|\bnvimgcodec|\bcvcuda|\bnvcv::", re.IGNORECASE)
