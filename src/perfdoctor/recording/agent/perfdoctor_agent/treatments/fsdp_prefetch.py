"""Gather the next layer's parameters while one computes."""

RULES = ("late-gathers", "exposed-communication")
ADVICE = r"_prefetch"
TOUCHES = (
    "`forward_prefetch` and `backward_prefetch` of FullyShardedDataParallel; the prefetches of what fully_shard sharded"
)
SINCE = "2.6"
RISK = "Parameters of one more layer are held at a time. Layers are to run in the order in which they were made."
NEEDS = ("ranks",)
PATCH = """for before, layer, after in zip(layers, layers[1:], layers[2:]):  # FSDP2; FSDP1: forward_prefetch=True
    layer.set_modules_to_forward_prefetch([after])
    layer.set_modules_to_backward_prefetch([before])"""


def apply(torch, given):
    from torch.distributed import fsdp

    def change(arguments):
        if arguments["forward_prefetch"] and arguments["backward_prefetch"] is fsdp.BackwardPrefetch.BACKWARD_PRE:
            return False
        arguments.update(forward_prefetch=True, backward_prefetch=fsdp.BackwardPrefetch.BACKWARD_PRE)
        return True

    given.construct(fsdp.FullyShardedDataParallel, change)

    def sharded(module, _inputs):
        """What is sharded inside the module that is called first is chained, in its order."""
        first.remove()
        layers = [each for each in module.modules() if isinstance(each, fsdp.FSDPModule) and each is not module]
        for layer, after in zip(layers, layers[1:]):
            layer.set_modules_to_forward_prefetch([after])
            after.set_modules_to_backward_prefetch([layer])
        if len(layers) > 1:
            given.touch()

    first = torch.nn.modules.module.register_module_forward_pre_hook(sharded)
