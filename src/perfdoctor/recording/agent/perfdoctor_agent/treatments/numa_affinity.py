"""Keep each rank on the cores of one NUMA node."""

RULES = ("rank-skew", "cpu-oversubscription", "slow-host-link")
ADVICE = r"numactl --cpunodebind"
TOUCHES = "the cores on which the process may run"
SINCE = "1.0"
RISK = "Cores of other nodes stay unused by this rank."
NEEDS = ("numa",)
PATCH = """numactl --cpunodebind=NODE --membind=NODE python train.py  # the node of the rank's GPU; torchrun: a wrapper by LOCAL_RANK"""


def apply(torch, given):
    import glob
    import os

    if given.values.get("ranks", 1) > 1 and "LOCAL_RANK" not in os.environ:
        return  # a launcher that imports torch: its ranks would inherit its cores

    nodes = []
    for path in sorted(glob.glob("/sys/devices/system/node/node[0-9]*/cpulist")):
        with open(path) as file:
            parts = [part.split("-") for part in file.read().strip().split(",") if part]
        cores = {core for part in parts for core in range(int(part[0]), int(part[-1]) + 1)}
        nodes.append(cores & os.sched_getaffinity(0))
    nodes = [cores for cores in nodes if cores]
    if len(nodes) > 1:
        os.sched_setaffinity(0, nodes[int(os.environ.get("LOCAL_RANK", "0")) % len(nodes)])
        given.touch()
