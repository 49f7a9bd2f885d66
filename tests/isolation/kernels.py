"""Kernels that the tests of this folder run in worker processes, by this file's path."""

import contextlib
import ctypes
import hashlib
import os
import subprocess
import sys
import threading
import time

import ml_dtypes
import neighbour
import numpy as np
import torch

import equivalence.declaration as equivalence
from equivalence.case import AttentionCase


def well_behaved(query, key, value, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    return torch.nn.functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attn_mask,
        is_causal=is_causal and attn_mask is None,
        scale=scale,
        enable_gqa=enable_gqa,
    )


@equivalence.attention(layout="BSHD", lse="natural")
def sequence_first(query, key, value):
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key)
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), value), scores.logsumexp(-1)


def _digest(*told):
    seen = hashlib.sha256()
    for item in told:
        if isinstance(item, torch.Tensor):
            seen.update(repr((item.dtype, item.shape, item.stride(), item.requires_grad)).encode())
            bits = item.detach().contiguous()
            seen.update(bits.view(torch.uint8).numpy().tobytes() if bits.numel() else b"")
        else:
            seen.update(repr((type(item), item)).encode())
    return torch.tensor(list(seen.digest()), dtype=torch.float64)


def fingerprint(
    query,
    key,
    value,
    *,
    attn_mask=None,
    is_causal=False,
    scale=None,
    window=None,
    window_size=None,
    softcap=None,
    sinks=None,
    alibi_slopes=None,
    kv_lengths=None,
    enable_gqa=False,
    head_order="grouped",
):
    """A digest of every bit, stride and type that it was called with."""
    return _digest(*locals().values())


def threads_used(query, key, value):
    return torch.tensor([float(torch.get_num_threads())])


RESULTS = {
    "float64": lambda q: q.double(),
    "float16": lambda q: q.half(),
    "bfloat16": lambda q: q.bfloat16(),
    "int64": lambda q: q.long(),
    "bool": lambda q: q > 0,
    "complex64": lambda q: q.to(torch.complex64) * 1j,
    "numpy": lambda q: q.float().numpy(),
    "float8": lambda q: q.float().numpy().astype(ml_dtypes.float8_e4m3fn),
    "transposed": lambda q: q.transpose(1, 2),
    "nothing": lambda q: None,
    "scalar": lambda q: torch.tensor(1.5),
    "no elements": lambda q: q[:0],
    "text": lambda q: "text",
    "NaN payload": lambda q: torch.tensor([float("nan"), -float("nan"), float("-inf"), -0.0]),
    "two": lambda q: (q, q),
}


def results(query, key, value, scale=1.0):
    return list(RESULTS.values())[int(scale)](query)


def objects(query, key, value):
    return np.array([object(), None])


def writes(query, key, value):
    key += 1
    return query.clone()


def refuses(query, key, value):
    raise NotImplementedError("head_dim above 64")


def raises(query, key, value):
    raise ZeroDivisionError("first line\nsecond line")


class Unprintable(Exception):
    def __str__(self):
        raise ValueError("no text")


def raises_unprintable(query, key, value):
    raise Unprintable


def aborts(query, key, value):
    print("about to abort")
    os.abort()


def exits(query, key, value):
    os._exit(0)


def segfaults(query, key, value):
    ctypes.string_at(1)


def loops(query, key, value):
    while True:
        pass


def sleeps_holding_the_lock(query, key, value):
    ctypes.PyDLL(None).sleep(1000)


def hangs_on_two_heads(query, key, value):
    while query.shape[1] == 2:
        time.sleep(0.01)
    return query.clone()


def eats_memory(query, key, value):
    eaten = []
    while True:
        eaten.append(torch.ones(1 << 22))
        time.sleep(0.005)


def asks_for_a_tebibyte(query, key, value):
    return torch.empty(1 << 38)


def exits_softly(query, key, value):
    raise SystemExit(3)


def interrupts(query, key, value):
    raise KeyboardInterrupt


def prints(query, key, value):
    print("to standard output")
    os.write(1, b"to descriptor 1\n")
    subprocess.run(["echo", "from a child"], check=True)
    sys.stderr.write("to standard error\n")
    return query.clone()


def closes_stdout(query, key, value):
    sys.stdout.close()
    with contextlib.suppress(OSError):
        os.close(1)
    return query.clone()


def closes_everything(query, key, value):
    os.closerange(3, 1024)
    return query.clone()


def starts_threads(query, key, value):
    for _ in range(3):
        threading.Thread(target=time.sleep, args=(1000,)).start()
    return query.clone()


def starts_processes(query, key, value):
    child = subprocess.Popen(["sleep", "1000"])
    return torch.tensor([float(child.pid)], dtype=torch.float64)


def forks(query, key, value):
    os.fork()
    return query.clone()


def sets_threads(query, key, value):
    torch.set_num_threads(torch.get_num_threads() + 3)
    return query.clone()


def dies_later(query, key, value):
    threading.Timer(0.1, os._exit, (7,)).start()
    return query.clone()


def imports_neighbour_late(query, key, value):
    import late_neighbour

    return late_neighbour.copied(neighbour.copied(query))


def reads_surroundings(query, key, value):
    told = os.environ.get("EQUIVALENCE_TEST_WORD", ""), os.getcwd(), len(sys.stdin.read())
    return _digest(*told)


@equivalence.attention(
    causal="upper_left",
    head_dims=(8, 16),
    options={"mask": "m"},
    supports=lambda case: True if case.head_dim < 64 else "head_dim above 63",
)
def picky(query, key, value, **keywords):
    return query.clone()


@equivalence.attention(supports=lambda case: case.no_such_field)
def faulty_supports(query, key, value):
    return query.clone()


@equivalence.attention(supports=lambda case: os.abort())
def deadly_supports(query, key, value):
    return query.clone()


@equivalence.attention(
    known_faults=(
        equivalence.KnownFault(
            law="agreement",
            trouble="non-finite",
            case=AttentionCase(num_kv_heads=2, scale=-1.0),
            note="negative scale",
        ),
    )
)
def with_known_fault(query, key, value):
    return query.clone()


def knows_algebra(query, key, value):
    if "sympy" in sys.modules:
        raise RuntimeError("sympy is imported")
    return well_behaved(query, key, value)


class Methods:
    @staticmethod
    def attend(query, key, value):
        return query.clone()


def two_tensors(query, key):
    return query


NUMBER = 3
