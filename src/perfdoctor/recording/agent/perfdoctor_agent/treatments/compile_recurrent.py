"""Compile a recurrent model with a forward of its own."""

RULES = ("elementwise-chains", "small-kernels", "launch-bound", "memory-bound-kernels", "cuda-graph-opportunity")
ADVICE = r"torch\.compile\(|\.compile\(\)"
TOUCHES = "torch._dynamo.config.allow_rnn, and Module.compile of each outermost module that is trained"
SINCE = "2.2"
RISK = "Each step of time is compiled: the first step takes long. Results are rounded otherwise."
GROUP = "compile"
NEEDS = ("compiler",)
STARTS_S = 240
PATCH = """torch._dynamo.config.allow_rnn = True  # else what derives from nn.RNN, GRU or LSTM is left as it is
model.compile()                        # before the first step"""


def apply(torch, given):
    of_torch = {kind.forward for kind in (torch.nn.RNN, torch.nn.GRU, torch.nn.LSTM)}

    def compiled(module):
        recurrent = [each for each in module.modules() if isinstance(each, torch.nn.RNNBase)]
        if all(type(each).forward in of_torch for each in recurrent):  # those have kernels of their own
            return False
        from torch._dynamo import config

        if not hasattr(config, "allow_rnn"):  # an older torch never compiles them
            return False
        config.allow_rnn = True
        return module.compile()

    given.models(compiled)
