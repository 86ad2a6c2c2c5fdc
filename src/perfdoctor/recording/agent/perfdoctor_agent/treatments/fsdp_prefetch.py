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
        """What is sharded inside the first such module that is trained is chained, in its order."""
        layers = [each for each in module.modules() if isinstance(each, fsdp.FSDPModule) and each is not module]
        if len(layers) < 2 or not any(each.requires_grad for each in module.parameters()):
            return  # an encoder or a teacher, which is called before it
        called.remove()
        for layer, after in zip(layers, layers[1:]):
            layer.set_modules_to_forward_prefetch([after])
            after.set_modules_to_backward_prefetch([layer])
        given.touch()

    called = torch.nn.modules.module.register_module_forward_pre_hook(sharded)
    given.at_first_update(called.remove)  # it would slow a program that has none
