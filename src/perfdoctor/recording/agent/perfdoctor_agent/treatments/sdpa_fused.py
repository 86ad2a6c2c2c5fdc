"""Let attention take its fused kernels."""

RULES = ("unfused-attention",)
ADVICE = r"sdpa_kernel|enable_flash_sdp"
TOUCHES = "torch.nn.attention.sdpa_kernel and torch.backends.cuda.enable_*_sdp, where the program allows the plain backend alone"
SINCE = "2.3"
RISK = "Results are rounded otherwise. Second derivatives need the plain backend."
GROUP = "attention"
PATCH = """# remove sdpa_kernel(SDPBackend.MATH), enable_flash_sdp(False) and enable_mem_efficient_sdp(False)
torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)"""


def apply(torch, given):
    from torch.nn import attention

    fused = ["FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "OVERRIDEABLE"]
    wanted = [getattr(attention.SDPBackend, name) for name in fused if hasattr(attention.SDPBackend, name)]

    def allowing(original):
        def call(backends, *args, **kwargs):
            asked = list(backends) if isinstance(backends, (list, tuple, set)) else [backends]
            if any(each in wanted for each in asked):
                return original(backends, *args, **kwargs)
            given.touch()
            return original([*asked, *wanted], *args, **kwargs)

        return call

    def enabling(original):
        def call(enabled):
            if not enabled:
                given.touch()
            return original(True)

        return call

    given.replace(attention, "sdpa_kernel", allowing)
    for name in ("enable_flash_sdp", "enable_mem_efficient_sdp"):
        given.replace(torch.backends.cuda, name, enabling)
