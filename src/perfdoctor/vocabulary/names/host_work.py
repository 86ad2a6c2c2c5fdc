"""What kind of work is a function or an op of the host, where it keeps the device waiting? Its fix depends on that."""

from __future__ import annotations

import re

from perfdoctor.patterns import regex

#: The first that fits. `torchinductor_<user>/…/c….py(2533): call` is the Python that Inductor writes: it allocates,
#: checks sizes and launches, kernel by kernel. cuDNN and MIOpen try algorithms when they see a shape first, inside the
#: op of the convolution. Modules are filled with random numbers where they are constructed.
KINDS = {
    "compiled-call": regex(
        r"torchinductor_\w+/|/\w{2}/c\w{20,}\.py\(\d+\): call$|torch/_inductor/(output_code|utils)\.py"
        r"|^## Call CompiledFxGraph"
    ),
    "algorithm-search": regex(
        r"^aten::(cudnn_convolution\w*|miopen_convolution\w*|_convolution|convolution(_backward)?)$|cudnn\w*(Find|Benchmark)|miopenFind"
    ),
    "model-construction": regex(
        r"(from_pretrained|load_state_dict|init_model|build_model|create_model|load_model|get_model|_?init_weights|reset_parameters)$"
        r"|torch/nn/init\.py\(\d+\): |torch/nn/modules/\w+\.py\(\d+\): __init__|[Mm]odel\w*\.py\(\d+\): __init__"
    ),
    "preprocessing": regex(
        r"tokeniz|(?<![a-z])(pre|post)_?process|image_transforms|image_processing|feature_extract|(^|/)PIL/|(^|/)cv2/|librosa"
        r"|torchvision/transforms|albumentations|: (encode|decode|batch_decode|collate\w*|apply_chat_template)$",
        re.IGNORECASE,
    ),
}


def kind_of(*names: str) -> str:
    """One of KINDS by the first name that says so; "" where none does."""
    return next((kind for name in names for kind, pattern in KINDS.items() if pattern.search(name)), "")
