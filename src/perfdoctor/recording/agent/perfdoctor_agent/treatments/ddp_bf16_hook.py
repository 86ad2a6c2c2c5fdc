"""Send gradients in bfloat16."""

RULES = ("exposed-communication", "full-precision-gradients", "slow-links")
ADVICE = r"bf16_compress_hook"
TOUCHES = "the communication hook of DistributedDataParallel"
SINCE = "1.11"
RISK = "Gradients are rounded to 8 bits before they are added up."
CHANGES_NUMERICS = True
NEEDS = ("ranks",)
PATCH = """from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
model.register_comm_hook(None, bf16_compress_hook)"""


def apply(torch, given):
    def hooked(original):
        def made(self, *args, **kwargs):
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

            original(self, *args, **kwargs)
            self.register_comm_hook(None, bf16_compress_hook)
            given.touch()

        return made

    given.replace(torch.nn.parallel.DistributedDataParallel, "__init__", hooked)
