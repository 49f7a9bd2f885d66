"""Run a program on a fresh cache in this process, and record its answers.

``factory(*, batch_size, num_kv_heads, head_dim, max_len, dtype, device)`` returns an object with
``append(key, value)`` (``[B, Hkv, n, D]``, oldest first), ``attend(query)`` (``[B, H, q, D]`` ->
the same shape; grouped heads, scale head_dim ** -0.5, lower-right causal over what is kept) and
``positions`` (int64 ``[L]``, absolute, oldest first; the longest row's, or ``[B, L]`` with -1
behind the end, when rows differ). ``truncate(length)``, ``reorder(batch_index)``, ``fork()``,
``append(..., lengths=)`` and ``nbytes`` are used where present. A factory is given the
arguments that it takes; dtype is a torch (or numpy) dtype.

One that is declared ``latent`` is told ``latent_dim`` and ``rope_dim`` as well, and has
``append(latent, key_rotary)`` (``[B, n, dc]`` and ``[B, n, dR]``, what one token keeps for all
heads) and ``attend(query)`` (``[B, H, q, dc + dR]``, W_UK absorbed, rotary part last -> ``[B, H, q,
dc]``, scale (head_dim + rope_dim) ** -0.5: absorption changes the width, and not the scale).
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import numpy as np

from equivalence.caches.inputs import CacheInputs
from equivalence.caches.live import LiveCache, factory_arguments
from equivalence.calling import LocalTarget
from equivalence.dtypes import Array, stored
from equivalence.errors import Unsupported, said
from equivalence.outcome import Outcome


def call(target: LocalTarget, inputs: CacheInputs) -> Outcome:
    """Run the whole program; the answers stand one after the other in ``stored``.

    extras: "positions/i" and "nbytes/i" after operation i, where the cache has them; "step" is
    the last operation that was begun. An exception's text starts with its operation.
    """
    extras: dict[str, Array] = {"step": np.asarray(-1)}
    poison = _nan_where_uninitialised() if inputs.poisoned else nullcontext()
    try:
        with poison:
            return _run(target, inputs, extras)
    except Exception as error:  # whatever a cache raises is a fact about it
        step = int(extras["step"])
        where = f"operation {step}, {inputs.program[step]}: " if step >= 0 else "making it: "
        status: Any = "memory" if isinstance(error, MemoryError) else "raised"
        if isinstance(error, Unsupported | NotImplementedError):
            status = "refused"
        return Outcome(status=status, text=where + said(error), extras=extras)


def _run(target: LocalTarget, inputs: CacheInputs, extras: dict[str, Array]) -> Outcome:
    declared = target.declaration
    given = factory_arguments(target.function, declared, inputs.sizes, inputs.dtype)
    latent = inputs.content_dim is not None
    live = LiveCache(
        cache=target.function(**given),
        arrays=declared.arrays,
        device=declared.device,
        latent=latent,
    )
    query, key, value = (stored(x, inputs.dtype) for x in (inputs.query, inputs.key, inputs.value))
    token = asked = 0
    answers: list[Array] = []
    dtype = inputs.dtype
    begin = time.thread_time()
    for step, (word, *numbers) in enumerate(inputs.program):
        extras["step"] = np.asarray(step)
        if word == "append":
            columns = slice(token, token + max(numbers))
            token = columns.stop
            lengths = tuple(numbers) if len(numbers) > 1 else None
            live.append(key[:, :, columns], value[:, :, columns], lengths)
        elif word == "attend":
            part = query[:, :, asked : asked + numbers[0]]
            asked += numbers[0]
            found = live.attend(part)
            if found is None:
                return Outcome(status="returned", text=f"operation {step} returned no array")
            wanted = (*part.shape[:3], inputs.output_shape[-1])
            if found[0].shape != wanted:
                text = f"operation {step} returned {list(found[0].shape)}, not {list(wanted)}"
                return Outcome(status="returned", text=text)
            answers.append(found[0].copy())
            dtype = found[1] if found[1] != inputs.dtype else dtype
        else:
            live.other((word, *numbers))
        positions, nbytes = live.positions(), live.nbytes()
        if positions is not None:
            extras[f"positions/{step}"] = positions
        if nbytes is not None:
            extras[f"nbytes/{step}"] = np.asarray(nbytes)
    return Outcome(
        status="returned",
        stored=np.concatenate(answers, axis=2),
        dtype=dtype,
        mutated=tuple(sorted(live.mutated)),
        extras=extras,
        seconds=time.thread_time() - begin,  # of the whole program
    )


def _nan_where_uninitialised() -> Any:
    """A context in which ``torch.empty`` and its kin hold NaN, where torch is loaded at all."""
    import torch
    from torch.overrides import TorchFunctionMode

    makers = (
        torch.empty,
        torch.empty_like,
        torch.empty_strided,
        torch.Tensor.new_empty,
        torch.Tensor.new_empty_strided,
    )

    class NanInEmpty(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            made = func(*args, **(kwargs or {}))
            if func in makers and made.is_floating_point():
                made.fill_(float("nan"))
            return made

    return NanInEmpty()
