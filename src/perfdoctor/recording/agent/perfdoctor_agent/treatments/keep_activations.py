"""Keep activations instead of computing them again."""

RULES = ("recomputation",)
ADVICE = r"gradient_checkpointing_disable"
TOUCHES = "torch.utils.checkpoint.checkpoint"
SINCE = "1.0"
RISK = "Memory grows by the activations of all layers."
PATCH = (
    """# remove torch.utils.checkpoint.checkpoint(block, x) → block(x); transformers: gradient_checkpointing=False"""
)


def apply(torch, given):
    import torch.utils.checkpoint as checkpoints

    def kept(_original):
        def call(function, *args, use_reentrant=None, context_fn=None, determinism_check=None, debug=None,
                 preserve_rng_state=None, early_stop=None, **kwargs):  # fmt: skip
            given.touch()
            return function(*args, **kwargs)

        return call

    given.replace(checkpoints, "checkpoint", kept)
