"""Let torch use all cores of the process."""

RULES = ("cpu-threads-unused",)
ADVICE = r"set_num_threads\(|OMP_NUM_THREADS"
TOUCHES = "torch.set_num_threads and OMP_NUM_THREADS"
SINCE = "1.0"
RISK = "Sums of many numbers are rounded in another order."
GROUP = "threads"
ENVIRONMENT = {"OMP_NUM_THREADS": "{threads}", "MKL_NUM_THREADS": "{threads}"}
PATCH = """torch.set_num_threads({threads})  # and OMP_NUM_THREADS={threads} in the environment"""


def apply(torch, given):
    from perfdoctor_agent import threads

    threads.fix(torch, given, given.values["threads"])
