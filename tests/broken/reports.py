"""Which public reports a broken kernel re-creates, and which ones each family must re-create."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T", bound=Callable[..., Any])


def reports(*rows: str) -> Callable[[T], T]:
    """Note the ids of the reports that a kernel, or a class of caches, re-creates."""

    def note(kernel: T) -> T:
        kernel.rows = rows  # type: ignore[attr-defined]
        return kernel

    return note


# The reports of each family, by its module here. "also" is what another family shares with it.
FAMILIES: Final[dict[str, tuple[str, ...]]] = {
    "rotary_kernels": (
        "ATT-RL-transformers-47328",
        "ATT-RL-transformers-39687",
        "ATT-RL-vllm-43676",
        "ATT-RL-vllm-41185",
        "ATT-RL-coreai-models-66",
        "ATT-RS-sglang-33558",
        "ATT-RS-vllm-46280",
        "ATT-RS-mlir-air-1948",
        "ATT-RS-exllamav3-259",
        "ATT-RS-transformers-25104",
        "ATT-RP-gpt-neox-1003",
        "ATT-RP-transformers-25681",
        "ATT-CUP-VeloxQuant-MLX-389",
        "ATT-CUP-mlx-lm-1699",
        "ATT-CUP-candle-1517",
    ),
    "mla_kernels": (
        "ATT-MS-vLLM-metax-113",
        "ATT-MS-Megatron-LM-1429",
        "ATT-MA-ik_llama.cpp-2031",
        "ATT-MA-sgl-kernel-xpu-210",
        "ATT-RL-transformers-39687",
        "ATT-RL-vllm-41185",
        "ATT-RS-sglang-33558",
        "ATT-SKLM-sglang-22688",
    ),
    "cache_kernels": (
        "ATT-CUP-transformers-37574",
        "ATT-CUP-VeloxQuant-MLX-389",
        "ATT-CUP-mlx-lm-1699",
        "ATT-CUP-tiny-llm-46",
        "ATT-CDO-mobius-14",
        "ATT-QK-vllm-42580",
        "ATT-QK-sglang-20705",
        "ATT-B-mlx-lm-1467",
        "ATT-PV-mlxcel-76",
        "ATT-PV-coremltools-2650",
        "ATT-NIP-flash-attentio-2374",
        "ATT-CA-Qwen-979",
        "ATT-CA-onnx-8054",
        "ATT-CA-executorch-4066",
    ),
    "packed_kernels": (
        "ATT-PV-DeepSpeed-7384",
        "ATT-PV-coremltools-2650",
        "ATT-SKLM-sglang-22688",
        "ATT-SKLM-flash-attentio-978",
        "ATT-SKLM-flashinfer-50",
        "ATT-SKLM-torchtitan-3235",
        "ATT-HDOTT-pytorch-174861",
        "ATT-NIP-flash-attentio-2374",
    ),
}
# Those that no wrong kernel stands for, and where they are seen instead.
NOT_BROKEN: Final[dict[str, str]] = {
    "ATT-RS-transformers-25104": (
        "kept as it is by its maintainers: reported as a property of the right kernel, "
        "test_dynamic_scaling_makes_cached_keys_stale_and_that_is_a_property"
    ),
}
