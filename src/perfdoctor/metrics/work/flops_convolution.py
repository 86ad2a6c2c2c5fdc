"""How many FLOP does a convolution do, forward and backward?

```
forward          = 2 · images · (numbers of the weight) · (places at which it is laid)
each gradient    = the same: that of the input, and that of the weight
```
The weight of a convolution with groups holds only the channels of one group, so groups need no factor of their own. A
transposed convolution lays its weight at every place of its input, any other at every place of its output, and those
follow from stride, padding and dilation: where they were not recorded, a forward pass stays uncounted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

Shape = tuple[int, ...]
#: FLOP by convention, of these what the model asks for, what is needed, and numbers read and written.
Counted = tuple[int, int, int, int]

#: Inputs: tensor, weight, bias, stride, padding, dilation, transposed, output padding, groups, …
_FORWARD = ("aten::convolution", "aten::_convolution")
#: Inputs: gradient, tensor, weight, sizes of the bias, then as above, and at last which gradients are asked for.
_BACKWARD = "aten::convolution_backward"
_NAMES = frozenset((*_FORWARD, _BACKWARD))


def is_convolution(op: str) -> bool:
    return op in _NAMES


def count(op: str, shapes: Sequence[Shape], values: Sequence[str]) -> Counted | None:
    return _backward(shapes, values) if op == _BACKWARD else _forward(shapes, values)


def _forward(shapes: Sequence[Shape], values: Sequence[str]) -> Counted | None:
    if len(shapes) < 2 or len(values) < 9 or not _fit(shapes[0], shapes[1]) or values[6] not in ("True", "False"):
        return None
    image, weight = shapes[:2]
    stride, padding, dilation, more = (_sides(values[at], len(image) - 2) for at in (3, 4, 5, 7))
    if not (stride and padding and dilation and more) or 0 in stride:
        return None
    groups, transposed = _sides(values[8], 1), values[6] == "True"
    if not groups:
        return None
    places = zip(image[2:], weight[2:], stride, padding, dilation, more, strict=True)
    # The side of a result: torch.nn.Conv2d and ConvTranspose2d, "Shape".
    if transposed:
        result = [
            (side - 1) * step - 2 * pad + far * (size - 1) + add + 1 for side, size, step, pad, far, add in places
        ]
        channels = weight[1] * groups[0]
    else:
        result = [(side + 2 * pad - far * (size - 1) - 1) // step + 1 for side, size, step, pad, far, _ in places]
        channels = weight[0]
    if min(result) < 0:
        return None
    flop = 2 * image[0] * prod(weight) * prod(image[2:] if transposed else result)
    return flop, flop, flop, prod(image) + prod(weight) + image[0] * channels * prod(result)


def _backward(shapes: Sequence[Shape], values: Sequence[str]) -> Counted | None:
    if len(shapes) < 3 or len(values) < 11 or not _fit(shapes[1], shapes[2]) or values[7] not in ("True", "False"):
        return None
    gradient, image, weight = shapes[:3]
    asked = re.findall(r"True|False", values[10])
    if len(gradient) != len(image) or gradient[0] != image[0] or len(asked) != 3:
        return None
    gradients = asked[:2].count("True")
    flop = 2 * image[0] * prod(weight) * prod(image[2:] if values[7] == "True" else gradient[2:]) * gradients
    return flop, flop, flop, prod(gradient) + gradients * (prod(image) + prod(weight))


def _fit(image: Shape, weight: Shape) -> bool:
    return len(image) == len(weight) >= 3


def _sides(text: str, count: int) -> list[int]:
    """`[2, 2]`, or `2` and `[2]` for all sides; empty if it is neither."""
    if not re.fullmatch(r"\[?\s*\d{1,9}(\s*,\s*\d{1,9})*\s*\]?", text):
        return []
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    return numbers * count if len(numbers) == 1 else numbers if len(numbers) == count else []
