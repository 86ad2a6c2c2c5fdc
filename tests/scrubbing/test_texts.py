"""What stands for names, paths and addresses in a copy."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

import perfdoctor.vocabulary
from perfdoctor.scrubbing.paths import PACKAGES
from perfdoctor.scrubbing.texts import Texts

CITED = "https://pytorch.org/docs/stable/data.html"


def replaced(*texts, keep_paths=False, learn=(), key=""):
    made = Texts(frozenset((CITED,)), keep_paths=keep_paths)
    for each in (*texts, *learn):
        made.learn(each, key)
    made.settle()
    return [made.text(each, key) for each in texts]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ada/llm/train.py(12): step", "/project-1/train.py(12): step"),
        ("/my code/llm/train.py(12): step", "/project-1/train.py(12): step"),
        ("/home/ada/.venv/lib/python3.11/site-packages/torch/nn/a.py", "/python-1/lib/python3.11/site-packages/torch/nn/a.py"),
        ("/home/ada/.venv/bin/python", "/folder-1/bin/python"),
        ("/usr/lib/python3/dist-packages/numpy/a.py", "/usr/lib/python3/dist-packages/numpy/a.py"),
        ("/opt/conda/lib/python3.10/threading.py(3): run", "/opt/conda/lib/python3.10/threading.py(3): run"),
        ("/srv/build/pytorch/torch/nn/modules/module.py", "/python-1/torch/nn/modules/module.py"),
        ("/tmp/torchinductor_ada/ab/cabcdefghijklmnopqrstuvwxyz.py(9): call", "/tmp/torchinductor_user/ab/cabcdefghijklmnopqrstuvwxyz.py(9): call"),
        ("/scratch/ada/cache/ab/cabcdefghijklmnopqrstuvwxyz.py", "/project-1/ab/cabcdefghijklmnopqrstuvwxyz.py"),
        (r"C:\Users\ada\llm\train.py", r"C:\project-1\train.py"),
        ("read /data/acme/secret/part-1.bin", "read /path-1.bin"),
        ("cwd:/home/ada", "cwd:/home-1"),
        ("~/work/acme", "/path-1"),
        ("/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6"),
        ("/srv/acme/libacme.so.1", "/folder-1/libacme.so.1"),
        ("12 GB/s, and/or 3/4 of a/b.py(3): f", "12 GB/s, and/or 3/4 of a/b.py(3): f"),
        ("void at::native::f<4, at::native::g<int>>(int, char*)", "void at::native::f<4, at::native::g<int>>(int, char*)"),
        ("node17:123:456 [0] NCCL INFO x", "host-1:123:456 [0] NCCL INFO x"),
        ("0.5node17:123:456 [0] NCCL INFO x\nnode17:123:456 [0] NCCL INFO x", "0.5host-1:123:456 [0] NCCL INFO x\nhost-1:123:456 [0] NCCL INFO x"),
        ("ssh ada@node17.acme.com:", "ssh user-1@host:"),
        ("mail ada.l@acme.com", "mail user-1@host"),
        ("mail ada.l@acme.com:please", "mail user-1@host:please"),
        ("git@github.com:acme/secretproj.git", "user-1@host:address-1"),
        ("ada@node17:runs/a.bin, @node17:1:2 [0] NCCL INFO", "user-1@host-1:address-1, @host-1:1:2 [0] NCCL INFO"),
        ("eth0:10.1.2.3<0>", "eth0:192.0.2.1<0>"),
        ("2023.4.4.54 and 127.0.0.1", "2023.4.4.54 and 127.0.0.1"),
        ("02:42:ac:11:00:02", "address-1"),
        ("fe80::1ff:fe23:4567:890a", "address-1"),
        ("Using eth0:2a02:8071:1234:5678:9abc:def0:1234:5678<0>", "Using eth0:address-1<0>"),
        ("ib0:fe80::9a03:9bff:fe12:3456%ib0<0>", "ib0:address-1<0>"),
        ("2a02:8071:1234::5 and [2a02:8071:1234::5]:29500", "address-1 and [address-1]:29500"),
        ("to fd00::17.", "to address-1."),
        ("[::ffff:10.1.2.3]:29500", "[::ffff:192.0.2.1]:29500"),
        ("[::]:29500, ::1 and c10::add, c10::De, aten::add, dead::beef, ::abs", "[::]:29500, ::1 and c10::add, c10::De, aten::add, dead::beef, ::abs"),
        ("0000:17:00.0 at 12:30:45 in 1:2:3:4:5", "0000:17:00.0 at 12:30:45 in 1:2:3:4:5"),
        ("std::f(12:30:45)", "std::f(12:30:45)"),
        ("GPU-1a2b3c4d-1a2b-1a2b-1a2b-1a2b3c4d5e6f", "GPU-00000001-0000-0000-0000-000000000000"),
        (f"s3://acme/x and {CITED}", f"s3://address-1 and {CITED}"),
        ("USER=ada\0HOME=/home/ada\0", ""),
        ("A=1;B=x;TOKEN=3", ""),
        ("lr=1 warmup=2 steps=3", "lr=1 warmup=2 steps=3"),
        ("HF_TOKEN=hf_abcdefghijklmnopqrst", "HF_TOKEN=***"),
    ],
)  # fmt: skip
def test_a_text_of_a_machine_gets_stand_ins_and_no_other(text, shown):
    assert replaced(text) == [shown]


PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nhunter2hunter2hunter2\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"a\n{PEM}\nb c", "a\n***\nb c"),
        (f"{PEM}\n{PEM}", "***\n***"),
        (PEM.replace("\n", "\\n"), "***"),
        (PEM.replace("\n", "\n[0]: ") + "\nb", "***\nb"),
        (PEM.rpartition("\n")[0] + "\nthe next line", "***\nthe next line"),
        ("-----BEGIN PUBLIC KEY-----\nMIIE", "-----BEGIN PUBLIC KEY-----\nMIIE"),
    ],
)
def test_a_private_key_is_masked_with_all_its_lines(text, shown):
    assert replaced(text) == [shown]


def test_a_name_is_the_same_everywhere_once_any_text_gives_it_away():
    environment = "HOSTNAME=node17.acme.com\0LOGNAME=lovelace\0HOME=/u3/lovelace\0API_KEY=opensesame\0"
    texts = ["step on node17", "node17.acme.com", "lovelace ran it", "/u3/lovelace/x", "say opensesame"]
    assert replaced(*texts, learn=[environment]) == ["step on host-1", "host-1", "user-1 ran it", "/path-1", "say ***"]


@pytest.mark.parametrize(
    ("name", "log"),
    [
        ("gpu-node-10", "{}:123:130 [0] NCCL INFO Bootstrap"),
        ("gpu-node-10", "0: {}:123:130 [0] NCCL INFO Bootstrap"),
        ("gpu-node-10", "[default0]:{}:123:130 [0] NCCL INFO Bootstrap"),
        ("gpu-node-10", "[1,0]<stdout>:{}:123:130 [0] NCCL INFO Bootstrap"),
        ("gpu-node-10", "2024-05-01T10:00:00.123Z {}:123:130 [0] NCCL INFO Bootstrap"),
        ("gpu-node-10", "(train pid=3) {}:123:130 [0] net.cc:12 NCCL WARN x"),
        ("gpu-12.research.acme", "{}:123:130 [-1] NCCL INFO Bootstrap"),
        ("3f2a9c1b4d5e", "{}:123:130 [0] NCCL INFO Bootstrap"),
        ("gpu-node-10", "#  Rank  0 Group  0 Pid   4085 on  {} device  0 [0000:17:00] NVIDIA H100"),
        ("gpu-node-10.corp", "x\n[0]:\n  time      : 12:30\n  host      : {}\n  rank      : 0"),
        ("gpu-node-10", "x\n0:   host      : {}\n"),
    ],
)
def test_a_host_is_known_behind_what_a_launcher_writes_in_front_of_it(name, log):
    assert replaced(f"sent to {name}", log.format(name)) == ["sent to host-1", log.format("host-1")]


def test_no_time_is_a_host_and_no_sentence_names_one():
    texts = [
        "10:00:00 [0] NCCL INFO x",
        "2024-05-01 10:00:00 [0] NCCL INFO",
        "host: sync",
        "a\nthe host : sync\n",
        "sync at 10",
    ]
    assert replaced(*texts) == texts


@pytest.mark.parametrize("name", ["gpu-12", "gpu-12.research.acme", "user-3.corp.de", "8xh100-a", "3f2a9c1b4d5e"])
def test_a_host_is_masked_whatever_it_begins_with(name):
    file = f"{name}_4242.1700000000000000000.pt.trace.json"
    made = Texts()
    made.learn(name, "host_name")
    made.learn_file(file)
    made.settle()
    assert made.file_name(file) == "host-1_4242.1700000000000000000.pt.trace.json"
    assert made.text(name, "host_name") == made.text(name) == "host-1"


def test_words_that_users_are_also_called_stay_in_names():
    users = ["/home/adam/x.py", "/home/train/y.py", "/home/add/z.py"]
    names = ["torch/optim/adam.py(3): adam", "train", "aten::add", "add<float>", "Add.add"]
    assert replaced(*names, learn=users) == names


@pytest.mark.parametrize("host", ["triton", "ampere", "h100", "sm90", "apex", "fused", "worker-1"])
def test_no_host_is_a_part_of_the_name_of_a_kernel_a_function_or_another_host(host):
    names = [
        "triton_red_fused_0", "ampere_bf16_s16816gemm_bf16", "nvjet_h100_x", "sm90_xmma_gemm", "void sm90::gemm<triton::x>",
        "apex/optimizers/fused_adam.py(3): step", "apex.optimizers", "aten::fused", "worker-10",
    ]  # fmt: skip
    assert replaced(*names, learn=[f"hostname: {host}"]) == names
    said = [f"sent to {host}", f"[{host}]:29500", f"{host}:1:2 [0] NCCL INFO x"]
    if host not in ("triton", "ampere"):  # words of recordings
        assert replaced(*said, learn=[f"hostname: {host}"]) == [
            "sent to host-1",
            "[host-1]:29500",
            "host-1:1:2 [0] NCCL INFO x",
        ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gpu-node-17.acme-corp.com:29500", "host-1:29500"),
        ("[gpu-node-17.acme-corp.com]:29500", "[host-1]:29500"),
        ("gpu-node-17.acme-corp.com, then (node18.acme.internal).", "host-1, then (host-2)."),
        ("mew.acme.com:29500", "host-3:29500"),
        ("gpu-node-17.pt.trace.json and gpu-node-17.log", "host-1.pt.trace.json and host-1.log"),
        ("gpu-node-17. Then mew.ops and gpu-node-17.4", "host-1. Then mew.ops and host-1.4"),
    ],
)
def test_the_domain_of_a_known_host_goes_with_it(text, shown):
    learn = ["hostname: gpu-node-17", "hostname: node18", "hostname: mew"]
    assert replaced("gpu-node-17 node18 mew", text, learn=learn)[1] == shown


def test_a_secret_that_is_a_word_is_masked_where_it_stands_alone():
    environment = "HOME=/root\0JUPYTER_TOKEN=pytorch\0DB_PASSWORD=length\0API_KEY=Tr0ub4dor-and-3\0"
    texts = [
        "pytorch_flash::flash_fwd_kernel",
        "seq_length",
        "aten::lengths_range",
        "length()",
        "length",
        "xTr0ub4dor-and-3",
    ]
    assert replaced(*texts, learn=[environment]) == [*texts[:-2], "***", "x***"]


def test_shapes_are_no_environment():
    shapes = ["B=32;S=2048;D=4096", "BATCH=32;LR=1e-4;SCALE=-0.5"]
    assert replaced(*shapes) == shapes
    assert replaced("A=1;B=2;DB_PASSWORD=3") == [""]


def test_kept_paths_are_kept_and_nothing_else_is():
    text = "/home/ada/llm/train.py on node17 with hf_abcdefghijklmnopqrst"
    assert replaced(text, keep_paths=True, learn=["HOSTNAME: node17"]) == ["/home/ada/llm/train.py on host-1 with ***"]


@pytest.mark.parametrize(
    ("key", "text", "shown"),
    [
        ("hostname", "node17", "host-1"),
        ("user", "lovelace", "user-1"),
        ("wandb_api_key", "x1", "***"),
        ("name", "x1", "x1"),
        ("api-key", "hunter2", "***"),
        ("x-amz-security-token", "hunter2", "***"),
        ("pwd", "hunter2", "***"),
        ("Set-Cookie", "a=b", "***"),
        ("bearer", "hunter2", "***"),
        ("jwt", "hunter2", "***"),
        ("token", "Zx81kLmn0PqRs", "***"),
        ("token", "the", "the"),
        ("pass", "torch", "torch"),
        ("key", "0123456789abcdef0123456789abcdef", "***"),
        ("key", "hidden_copy_ns", "hidden_copy_ns"),
        ("key", "layers.12.self_attn.q_proj.weight", "layers.12.self_attn.q_proj.weight"),
        ("signature", "(Tensor self, Tensor other) -> Tensor", "(Tensor self, Tensor other) -> Tensor"),
    ],
)
def test_the_key_of_a_text_says_what_it_is(key, text, shown):
    assert replaced(text, key=key) == [shown]


def test_stand_ins_of_a_copy_stay_in_a_copy_of_it():
    text = "/home/ada/llm/train.py, /data/x.bin, node17:1:2 [0] NCCL, s3://bucket/x, 10.1.2.3"
    once = replaced(text)
    assert replaced(*once) == once


def test_more_than_nine_hosts_keep_the_order_of_their_files():
    texts = Texts()
    names = [f"node{number:02}_{number}.1700000000000.pt.trace.json" for number in range(12)]
    for name in names:
        texts.learn_file(name)
    texts.settle()
    shown = [texts.file_name(name) for name in names]
    assert shown == sorted(shown)
    assert shown[0] == "host-01_0.1700000000000.pt.trace.json"


def test_every_package_by_which_the_vocabulary_knows_a_path_is_kept():
    """Or a diagnosis would not know a program by the copy's paths."""
    begins = re.compile(r"\((?:\?:)?\^\|/\)(?:\(\?:|\()?([\w|]+)(?:\))?/")
    folder = Path(perfdoctor.vocabulary.__file__).parent
    sources = [file.read_text("utf-8") for file in (*folder.rglob("*.py"), *folder.rglob("*.toml"))]
    named = {name for source in sources for found in begins.findall(source) for name in found.split("|")}
    assert {"sglang", "vllm", "deepspeed", "torch"} <= named
    assert named - PACKAGES == set()


@pytest.mark.parametrize(
    "piece",
    [
        "/a",
        "a@",
        "a.",
        "1.",
        "0:",
        "\\",
        "A=1;",
        "A=",
        "key=",
        "a://",
        "~a/",
        "a:1:1 [",
        "user name",
        "/a.py(1): ",
        "NCCL ",
        ":a1:1:1 [0] NCCL ",
        "\nhost : ",
        "Pid 1 on a device",
        "2::",
        "eth0:2:",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\na",
        "a@b.cd:e/",
        "gpu-1.a",
    ],
)
def test_a_long_text_is_cleaned_soon(piece):
    begun = time.process_time()
    replaced(piece * (200_000 // len(piece)), learn=["hostname: gpu-1"])
    assert time.process_time() - begun < 3
