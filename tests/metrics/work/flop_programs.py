"""Run by a Python with torch: FLOP of small programs as torch counts them, and a Kineto trace of each. On the CPU.

`flop_programs.py FOLDER OP…` writes PROGRAM.json, a trace of each, and prints as JSON
{"counted": {program: {"total": …, "by_op": {…}}}, "signatures": {op: [names of its arguments]}}.
"""

import json
import sys

import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from torch.utils import flop_counter
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

ATEN = torch.ops.aten
#: torch counts the attention of GPUs, and knows that of the CPU not: its own formulas, for its own op.
OWN = {
    ATEN._scaled_dot_product_flash_attention_for_cpu: flop_counter.sdpa_flop.__wrapped__,
    ATEN._scaled_dot_product_flash_attention_for_cpu_backward: flop_counter.sdpa_backward_flop.__wrapped__,
}


class Block(torch.nn.Module):
    def __init__(self, width, heads, causal, fused):
        super().__init__()
        self.heads, self.causal, self.fused = heads, causal, fused
        self.norm, self.qkv = torch.nn.LayerNorm(width), torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width, bias=False)
        self.mlp = torch.nn.Sequential(
            torch.nn.LayerNorm(width),
            torch.nn.Linear(width, 4 * width),
            torch.nn.GELU(),
            torch.nn.Linear(4 * width, width),
        )

    def forward(self, x):
        batch, sequence, width = x.shape
        split = self.qkv(self.norm(x)).view(batch, sequence, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        backend = torch.nn.attention.SDPBackend.FLASH_ATTENTION if self.fused else torch.nn.attention.SDPBackend.MATH
        with torch.nn.attention.sdpa_kernel(backend):
            seen = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, sequence, width))
        return x + self.mlp(x)


class Transformer(torch.nn.Module):
    def __init__(self, causal, fused, again=False):
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(97, 48), torch.nn.Linear(48, 97, bias=False)
        self.blocks = torch.nn.ModuleList(Block(48, 4, causal, fused) for _ in range(2))
        self.again = again

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.head(x)


class Residual(torch.nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        conv = torch.nn.Conv2d
        self.body = torch.nn.Sequential(
            conv(inside, outside, 1, bias=False), torch.nn.BatchNorm2d(outside), torch.nn.ReLU(),
            conv(outside, outside, 3, stride, 1, bias=False), torch.nn.BatchNorm2d(outside), torch.nn.ReLU(),
            conv(outside, 4 * outside, 1, bias=False), torch.nn.BatchNorm2d(4 * outside),
        )  # fmt: skip
        self.short = conv(inside, 4 * outside, 1, stride, bias=False)

    def forward(self, x):
        return functional.relu(self.body(x) + self.short(x))


def transformer(causal, fused, again=False):
    model = Transformer(causal, fused, again)
    tokens = torch.randint(0, 97, (3, 33))
    # Stopping early raises from inside an op that is recorded, and computes nothing.
    with set_checkpoint_early_stop(False):
        logits = model(tokens[:, :-1])
        functional.cross_entropy(logits.reshape(-1, 97), tokens[:, 1:].reshape(-1)).backward()


def resnet():
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, 1),
        Residual(16, 8, 1), Residual(32, 8, 1), Residual(32, 16, 2), Residual(64, 16, 1),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10),
    )  # fmt: skip
    loss = functional.cross_entropy(model(torch.randn(4, 3, 65, 65)), torch.randint(0, 10, (4,)))
    loss.backward()


def products():
    """Each kind of product by itself, with sides that no other has."""
    a, b = torch.randn(5, 7, requires_grad=True), torch.randn(7, 11, requires_grad=True)
    stack, other = torch.randn(3, 5, 7, requires_grad=True), torch.randn(3, 7, 2, requires_grad=True)
    torch.mm(a, b).sum().backward()
    torch.addmm(torch.randn(11), a, b).sum().backward()
    torch.bmm(stack, other).sum().backward()
    torch.baddbmm(torch.randn(3, 5, 2), stack, other).sum().backward()
    torch.einsum("bij,bjk->bik", stack, other).sum().backward()
    torch.matmul(torch.randn(2, 3, 5, 7), torch.randn(7, 4))
    functional.linear(torch.randn(2, 3, 7), torch.randn(4, 7), torch.randn(4))


def convolutions():
    """Strides, paddings, dilations and transposed ones in one, two and three dimensions, without groups."""
    cases = (
        (torch.nn.Conv1d(4, 6, 3, padding="same"), (2, 4, 10)),
        (torch.nn.Conv2d(3, 8, (3, 5), stride=(2, 1), padding=(1, 2), dilation=(1, 2)), (2, 3, 17, 19)),
        (torch.nn.Conv3d(2, 4, 3, stride=2, padding=1), (2, 2, 9, 7, 8)),
        (torch.nn.ConvTranspose1d(5, 3, 4, stride=2, padding=1, output_padding=1), (2, 5, 9)),
        (torch.nn.ConvTranspose2d(6, 4, 3, stride=2), (3, 6, 8, 7)),
        (torch.nn.Conv2d(3, 4, 3), (3, 9, 9)),  # one image without a batch
    )
    for layer, shape in cases:
        layer(torch.randn(*shape, requires_grad=True)).sum().backward()
    layer, shape = cases[1]
    layer(torch.randn(*shape)).sum().backward()  # nobody asks for the gradient of the image


def grouped(*, apart: bool):
    """A convolution with four groups, or a group at a time: torch counts its weight's gradient too often."""
    image, weight = torch.randn(2, 8, 12, 12, requires_grad=True), torch.randn(16, 2, 3, 3, requires_grad=True)
    _convolved(functional.conv2d, image, weight, groups=4, apart=apart, padding=1)


def transposed(*, apart: bool):
    image, weight = torch.randn(2, 8, 5, 6, requires_grad=True), torch.randn(8, 3, 3, 3, requires_grad=True)
    _convolved(functional.conv_transpose2d, image, weight, groups=2, apart=apart, stride=2)


def _convolved(convolution, image, weight, *, groups: int, apart: bool, **options):
    if not apart:
        convolution(image, weight, groups=groups, **options).sum().backward()
        return
    parts = zip(image.chunk(groups, 1), weight.chunk(groups), strict=True)
    torch.cat([convolution(x, w, **options) for x, w in parts], 1).sum().backward()


PROGRAMS = {
    "transformer": lambda: transformer(causal=False, fused=False),
    "transformer-causal": lambda: transformer(causal=True, fused=False),
    "fused-attention": lambda: transformer(causal=False, fused=True),
    "fused-attention-causal": lambda: transformer(causal=True, fused=True),
    "checkpointed": lambda: transformer(causal=True, fused=True, again=True),
    "resnet": resnet,
    "products": products,
    "convolutions": convolutions,
    "grouped": lambda: grouped(apart=False),
    "grouped-apart": lambda: grouped(apart=True),
    "transposed": lambda: transposed(apart=False),
    "transposed-apart": lambda: transposed(apart=True),
}


def counted(name, folder):
    torch.manual_seed(0)
    with flop_counter.FlopCounterMode(display=False, custom_mapping=OWN) as counter:
        PROGRAMS[name]()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        PROGRAMS[name]()
    recorded.export_chrome_trace(f"{folder}/{name}.json")
    by_op = {str(op): flop for op, flop in counter.get_flop_counts().get("Global", {}).items()}
    return {"total": counter.get_total_flops(), "by_op": by_op}


def signature(name):
    """The names of an op's arguments, as torch declares them."""
    space, op = name.split("::")
    return [argument.name for argument in getattr(getattr(torch.ops, space), op).default._schema.arguments]


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, *ops = sys.argv[1:]
    counts = {name: counted(name, folder) for name in PROGRAMS}
    print(json.dumps({"counted": counts, "signatures": {name: signature(name) for name in ops}}))
