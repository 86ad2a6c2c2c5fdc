"""Is it known whether a program is PyTorch's, JAX's or neither, and is nothing said of PyTorch where it is not?"""

from __future__ import annotations

import html
import re

import foreign_programs
import pytest
from folders import public
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.kernels.costs import kernel_costs
from perfdoctor.metrics.program import framework
from perfdoctor.readers.nsys import timeline as nsys
from perfdoctor.readers.open import read
from perfdoctor.vocabulary.rulebook import load_rules

#: What nobody wants to read who does not use PyTorch. `Tensor` is in names of cuBLAS's kernels.
OF_TORCH = re.compile(
    r"torch|DataLoader|\.item\(|pin_memory|autograd|autocast|\bnn\.|\bDDP\b|FSDP|DeepSpeed|vLLM|channels_last|non_blocking"
    r"|zero_grad|optimizer|train\.py|\btraining\b",
    re.IGNORECASE,
)
#: Recordings of programs in C++ with MPI, in Python without PyTorch, and of single kernels.
OTHERS = (
    "nsys/cloverleaf-mpi-a100.sqlite",
    "nsys/power-iteration-t4.sqlite",
    "nsys/schema-2.9.1.sqlite",
    "ncu/mlp-t4-v7.ncu-rep",
    "wild/c-llmc-adamw.ncu-rep",
)
OF_PYTORCH = (
    "nsys/laptop-ada-not-utf8.sqlite",
    "nsys/cuda-graphs-a100.sqlite",
    "nsys/mock.sqlite",
    "wild/n-zx-27.sqlite",
    "ncu/silu-pytorch.txt",
)


def said_of_torch(file, tmp_path) -> list[str]:
    """In the terminal, as Markdown and on the page without its scripts."""
    page = tmp_path / "page.html"
    said = []
    for form in ("text", "markdown"):
        done = CliRunner().invoke(app, ["analyze", str(file), "--all", "--format", form, "--html", str(page)])
        assert done.exit_code == 0, done.output
        said.append(done.stdout)
    text = re.sub(r"<(script|style)\b.*?</\1>", "", page.read_text("utf-8"), flags=re.DOTALL)
    said.append(html.unescape(re.sub(r"<[^>]*>", " ", text)))
    return [line for text in said for line in text.splitlines() if OF_TORCH.search(line)]


@pytest.mark.parametrize("domain", ["", "TSL:"])
def test_a_program_of_xla_is_known_by_its_ranges_and_its_steps_by_the_module(tmp_path, domain):
    timeline = nsys.read(foreign_programs.jax(tmp_path / "jax.sqlite", domain=domain))
    assert framework(timeline) == "jax"
    (place,) = prepare(timeline).places
    assert (place.steps.found_by, place.steps.confidence) == ("xla-module", "high")
    assert set(place.steps.durations_ns.tolist()) == {foreign_programs.STEP_NS}


def test_the_rules_of_the_device_and_of_the_host_find_what_is_planted_in_both(tmp_path):
    for made, planted in ((foreign_programs.jax, {"recompilation"}), (foreign_programs.cuda, set())):
        diagnosis = diagnose(nsys.read(made(tmp_path / "x.sqlite")), [*load_rules().values()])
        assert {each.rule for each in diagnosis.findings} >= {"pageable-copies", *planted}, made
        assert all(each.fixes for each in diagnosis.findings)


def test_what_xla_compiles_in_a_step_is_compilation(tmp_path):
    diagnosis = diagnose(nsys.read(foreign_programs.jax(tmp_path / "jax.sqlite")), [])
    assert [split.idle_causes_ns["compilation"] for split in diagnosis.time] == [3_000_000]


def test_neither_jax_nor_cuda_alone_is_told_of_torch(tmp_path):
    for made in (foreign_programs.jax, foreign_programs.cuda):
        assert said_of_torch(made(tmp_path / "program.sqlite"), tmp_path) == [], made


@pytest.mark.recordings
@pytest.mark.parametrize("name", OTHERS)
def test_nor_are_the_people_who_made_these_recordings(name, tmp_path):
    assert said_of_torch(public(name), tmp_path) == []


@pytest.mark.recordings
@pytest.mark.parametrize("name", OF_PYTORCH)
def test_pytorch_is_known_by_its_kernels(name):
    assert framework(read([public(name)])) == "torch"


@pytest.mark.parametrize(
    ("kernels", "known"),
    [
        (("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>", "mine"), "torch"),
        (("triton_poi_fused_add_0",), "torch"),
        (("loop_add_fusion_3", "ampere_sgemm_128x64_nn"), "jax"),
        (("wrapped_add",), "jax"),
        (("input_add_reduce_fusion",), "jax"),
        (("fusion_12",), "jax"),
        (("gemm_fusion_dot_5_0",), "jax"),
        (("wrapped_cells", "loop_reduce_kernel", "input_fusion_kernel", "fusion", "triton_softmax_kernel"), "cuda"),
        (("add_kernel_0d1d2d3de",), "triton"),
        (("ampere_sgemm_128x64_nn", "my_fusion(float*)", "loop_over_cells"), "cuda"),
    ],
)
def test_kernels_alone_show_what_launched_them(tmp_path, kernels, known):
    assert framework(nsys.read(foreign_programs.cuda(tmp_path / "x.sqlite", kernels=kernels))) == known


def test_kernels_of_torch_beside_xlas_are_torchs(tmp_path):
    file = foreign_programs.jax(tmp_path / "x.sqlite", extra=("void at::native::elementwise_kernel<128>",))
    assert framework(nsys.read(file)) == "torch"


def test_a_kernel_of_a_library_is_known_by_the_instruction_that_launched_it(tmp_path):
    run = prepare(nsys.read(foreign_programs.jax(tmp_path / "x.sqlite", extra=("nvjet_hsh_128x64_64x6_coopA_NNN",))))
    costs = kernel_costs(run)
    assert dict(zip(costs.names, costs.ops, strict=True))["nvjet_hsh_128x64_64x6_coopA_NNN"] == "fusion.5"


def test_the_kernels_of_xla_have_families(tmp_path):
    run = prepare(nsys.read(foreign_programs.jax(tmp_path / "x.sqlite")))
    costs = kernel_costs(run)
    assert dict(zip(costs.names, costs.families, strict=True)) == {
        "loop_add_fusion_3": "elementwise",
        "input_reduce_fusion": "reduction",
        "gemm_fusion_dot_7": "gemm",
        "wrapped_transpose": "elementwise",
        "fusion_12": "other",
    }
