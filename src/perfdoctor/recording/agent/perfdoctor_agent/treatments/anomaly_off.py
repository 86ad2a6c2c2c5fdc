"""Switch autograd's search for anomalies off."""

RULES = ("launch-bound", "host-work")
TOUCHES = "torch.autograd.set_detect_anomaly and torch.autograd.detect_anomaly"
SINCE = "1.0"
RISK = "A gradient that is not a number is not reported any more."
ANYWAY = True
PATCH = """torch.autograd.set_detect_anomaly(False)"""


def apply(torch, given):
    def off(original):
        def call(mode, check_nan=True):
            if mode:
                given.touch()
            return original(False, check_nan)

        return call

    given.replace(torch, "set_anomaly_enabled", off)
