"""What did each module of the model cost? The records that a report may use."""

from __future__ import annotations

from msgspec import Struct


class ModuleCost(Struct, frozen=True):
    """One module. All but `depth` are per step (per window where no steps were found) and per rank.

    `path`: from the outermost module, of which the class stands for its name (`GPT.layers.7.attn`); "" for all that
    happened outside of modules. `calls`: of its forward, without those that the backward pass repeats. `own_`: without
    the modules inside; own times of all modules, and of what is outside, sum to the time of all work. `forward_ns` and
    `backward_ns`: of the GPU's work that was launched there, without a GPU of the training thread's ops.
    `model_flop`: as in MFU. `peak_share`: model FLOP ÷ (peak · time on the GPU), None where it is not known.
    `exposed_communication_ns`: of collectives launched in it. `idle_ns`: how long the device did nothing while the
    host was in it.
    """

    path: str
    module_class: str
    depth: int
    calls: float
    own_forward_ns: float
    own_backward_ns: float
    forward_ns: float
    backward_ns: float
    own_model_flop: float
    model_flop: float
    peak_share: float | None
    own_exposed_communication_ns: float
    exposed_communication_ns: float
    own_idle_ns: float
    idle_ns: float

    @property
    def own_ns(self) -> float:
        return self.own_forward_ns + self.own_backward_ns

    @property
    def ns(self) -> float:
        return self.forward_ns + self.backward_ns
