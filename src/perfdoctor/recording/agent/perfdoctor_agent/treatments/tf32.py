"""Multiply fp32 matrices in TF32."""

RULES = ("fp32-matmuls",)
ADVICE = r"set_float32_matmul_precision"
TOUCHES = "torch.set_float32_matmul_precision"
SINCE = "1.12"
RISK = "Factors are rounded to 10 bits of mantissa."
CHANGES_NUMERICS = True
NEEDS = ("cuda",)
PATCH = """torch.set_float32_matmul_precision("high")"""


def apply(torch, given):
    if torch.get_float32_matmul_precision() == "highest":
        torch.set_float32_matmul_precision("high")
        given.touch()
