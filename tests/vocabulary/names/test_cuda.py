"""Are calls of the runtimes and the driver distinguished by their names?"""

from __future__ import annotations

import pytest

from perfdoctor.vocabulary.names import cuda


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        (cuda.BLOCKING_CALL, ["cudaStreamSynchronize", "zeEventHostSynchronize", "urQueueFinish", "hipMemcpyWithStream", "cuMemcpyDtoH_v2"], ["cudaStreamWaitEvent", "cudaMemcpyAsync", "urEnqueueUSMMemcpy"]),
        (cuda.SYNCHRONIZES, ["cuCtxSynchronize", "urEventWait"], ["cudaStreamWaitEvent"]),
        (cuda.WAITS_FOR_EVENT, ["cudaEventSynchronize"], ["cudaDeviceSynchronize"]),
        (cuda.ALLOCATOR_CALL, ["cudaMalloc", "urUSMDeviceAlloc", "zeMemFree", "hipHostMalloc", "cuMemSetAccess"], ["cuMemcpyDtoH"]),
        (cuda.MODULE_LOADING_CALL, ["cuModuleLoadData", "cudaGraphInstantiate"], ["cuLaunchKernel"]),
        (cuda.LAUNCH, ["hipExtModuleLaunchKernel", "urEnqueueKernelLaunch", "zeCommandListAppendLaunchKernel"], ["cudaLaunchHostFunc"]),
        (cuda.STREAM_WAIT, ["cuStreamWaitEvent"], ["cudaStreamSynchronize"]),
        (cuda.GRAPH_LAUNCH, ["hipGraphLaunch"], ["cudaLaunchKernel"]),
    ],
)  # fmt: skip
def test_names_are_distinguished(pattern, names, others):
    assert all(pattern.search(name) for name in names)
    assert not any(pattern.search(name) for name in others)


@pytest.mark.parametrize(
    ("call", "plain"),
    [
        ("cuMemFree_v2", "cuMemFree"),
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
        ("cudaMemcpy_ptds", "cudaMemcpy_ptds"),
    ],
)
def test_the_version_of_an_interface_is_taken_away(call, plain):
    assert cuda.without_version(call) == plain
