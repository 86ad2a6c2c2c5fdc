"""Add gradients up in one message instead of one for each parameter."""

RULES = ("exposed-communication", "small-collectives", "peer-waits", "rank-skew")
ADVICE = r"all_reduce\(flat\)"
TOUCHES = "torch.distributed.all_reduce of gradients, one behind the other, between backward pass and update"
SINCE = "1.11"
RISK = "Gradients that the program changes between two of these calls are sent as they were at the first one."
NEEDS = ("ranks",)
PATCH = """grads = [p.grad for p in model.parameters() if p.grad is not None]
flat = torch._utils._flatten_dense_tensors(grads)
torch.distributed.all_reduce(flat)
for grad, summed in zip(grads, torch._utils._unflatten_dense_tensors(flat, grads)):
    grad.copy_(summed)
# better still, with overlap: model = torch.nn.parallel.DistributedDataParallel(model)"""


def apply(torch, given):
    from perfdoctor_agent import merged

    merged.install(torch, given)
