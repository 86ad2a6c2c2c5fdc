"""Lay images out with their channels last."""

RULES = ("layout-transposes", "kernels-far-from-roofline", "depthwise-convolutions")
ADVICE = r"channels_last"
TOUCHES = "parameters and inputs of four dimensions of each outermost module with convolutions"
SINCE = "1.7"
RISK = "Results are rounded otherwise. `view` of an intermediate result may fail: `reshape` does not."
PATCH = """model = model.to(memory_format=torch.channels_last)
images = images.to(memory_format=torch.channels_last)"""


def apply(torch, given):
    def laid_out(value):
        is_image = isinstance(value, torch.Tensor) and value.dim() == 4 and value.is_floating_point()
        return value.contiguous(memory_format=torch.channels_last) if is_image else value

    def treat(module):
        if not any(each.dim() == 4 for each in module.parameters()):
            return False
        module.to(memory_format=torch.channels_last)
        forward = module.forward

        def call(*args, **kwargs):
            return forward(*map(laid_out, args), **{name: laid_out(value) for name, value in kwargs.items()})

        module.forward = call
        return True

    given.models(treat)
