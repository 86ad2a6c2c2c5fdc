"""Compute each op on one core."""

RULES = ("cpu-oversubscription", "small-kernels", "launch-bound")
ADVICE = r"set_num_threads\(1\)|OMP_NUM_THREADS=1\b"
TOUCHES = "torch.set_num_threads and OMP_NUM_THREADS"
SINCE = "1.0"
RISK = "Large ops take longer."
GROUP = "threads"
NEEDS = ("cpu",)
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
PATCH = """torch.set_num_threads(1)  # and OMP_NUM_THREADS=1 in the environment"""


def apply(torch, given):
    from perfdoctor_agent import threads

    threads.fix(torch, given, 1)
