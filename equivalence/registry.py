"""Names of backends, ours and third parties', each loaded only when it is used.

A third party registers through the entry-point group ``equivalence.backends``::

    [project.entry-points."equivalence.backends"]
    "acme.paged" = "acme.kernels:attention"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from equivalence.errors import InvalidRequest

if TYPE_CHECKING:
    from equivalence.calling import LocalTarget
    from equivalence.declaration import Declaration

GROUP: Final = "equivalence.backends"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One registered name.

    place: ``module:attribute``. requires: top-level modules that it imports and that are not
    dependencies of this package. extra: the extra that installs them, "" for none. platforms: of
    ``sys.platform``, empty for all. distribution: who registered it, "" for this package.
    trouble: why it cannot be used, known before anything is imported. aborts: it may end the
    process that it runs in, or leave it unfit for others, so it runs in a worker although it is
    ours. slow: it runs when it is named, and not with all. unverified: it was written from
    documentation, and has never met the library that it is for. pip: what installs that
    library, where no extra does. patience: seconds that a call may take at the least, whatever
    the usual limit is (its first one compiles).
    """

    name: str
    place: str
    kind: str = "attention"
    requires: tuple[str, ...] = ()
    extra: str = ""
    platforms: tuple[str, ...] = ()
    distribution: str = ""
    trouble: str = ""
    aborts: bool = False
    slow: bool = False
    unverified: bool = False
    pip: str = ""
    patience: float = 0.0

    def available(self) -> bool | str:
        """True, or why not.

        Of our own backends nothing is imported: their requirements are looked up. What a third
        party's needs nobody has said, so it is imported, and whatever it raises is the reason.
        """
        if self.trouble:
            return self.trouble
        reason = self._missing()
        if reason or not self.distribution:
            return reason or True
        try:
            self.function()
        except InvalidRequest as error:
            return str(error)
        return True

    def load(self) -> LocalTarget:
        """The backend, imported; raises InvalidRequest, in one line, where that does not work."""
        reason = self.trouble or self._missing()
        if reason:
            raise InvalidRequest(f"{self.name}: {reason}")
        from equivalence.calling import LocalTarget

        return LocalTarget.of(self.function(), name=self.name)

    def _missing(self) -> str:
        import sys

        if self.platforms and sys.platform not in self.platforms:
            return f"needs {' or '.join(self.platforms)}, and this is {sys.platform}"
        missing = [module for module in self.requires if find_spec(module) is None]
        if not missing:
            return ""
        install = f": pip install 'attention-equivalence[{self.extra}]'" if self.extra else ""
        if self.pip:
            install = f": pip install {self.pip}, on a machine with CUDA"
        return f"{' and '.join(missing)} not installed{install}"

    def function(self) -> Any:
        """The function itself, imported; raises InvalidRequest, in one line, if that fails."""
        module, colon, attribute = self.place.partition(":")
        if not colon or not attribute:
            raise InvalidRequest(f"{self.name}: {self.place!r} is not module:attribute")
        try:
            found: Any = import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
        except (Exception, SystemExit) as error:  # a broken backend must not break the others
            said = " ".join(str(error).split())
            raise InvalidRequest(
                f"{self.name}: {self.place} fails: {type(error).__name__}: {said}"
            ) from error
        if not callable(found):
            raise InvalidRequest(
                f"{self.name}: {self.place} is a {type(found).__name__}, not a callable"
            )
        return found


def _ours(name: str, place: str, **facts: Any) -> Backend:
    return Backend(name=name, place=f"equivalence.backends.{place}", **facts)


COMPILES: Final[dict[str, Any]] = {"aborts": True, "patience": 60.0}
INDUCTOR: Final[dict[str, Any]] = {"aborts": True, "patience": 300.0, "slow": True}


def _runtime(name: str, place: str, runtime: str, **facts: Any) -> Backend:
    """A backend of an optional runtime, whose module and extra have the same name."""
    return _ours(name, place, **{"requires": (runtime,), "extra": runtime, **facts})


FLASH_MLA: Final = "git+https://github.com/deepseek-ai/FlashMLA"


def _cuda(name: str, place: str, module: str, pip: str, kind: str = "attention") -> Backend:
    """An adapter for a CUDA library, written from its documentation."""
    return _ours(
        name, f"cuda_{place}", kind=kind, requires=(module,), pip=pip, aborts=True, unverified=True
    )


def _hugging_face(name: str, attribute: str) -> Backend:
    return _ours(
        name,
        f"rotary_transformers:{attribute}",
        kind="rotary",
        requires=("transformers",),
        extra="transformers",
    )


def _graph(name: str, attribute: str) -> Backend:
    """A converter to Core ML, whose graph is evaluated by MIL's documented meaning."""
    return _ours(name, f"coreml_graph:{attribute}", kind="converter", requires=("coremltools",))


def _compressed(name: str, attribute: str) -> Backend:
    """The same with compressed weights: tables of them are made by scikit-learn's k-means."""
    return _ours(
        name,
        f"coreml_compressed:{attribute}",
        kind="converter",
        requires=("coremltools", "sklearn"),
        extra="coreml",
        slow=True,
    )


def _device(name: str, attribute: str) -> Backend:
    """Core ML itself, on one compute unit of a Mac."""
    return _ours(
        name,
        f"coreml_device:{attribute}",
        kind="converter",
        requires=("coremltools",),
        platforms=("darwin",),
        aborts=True,
    )


def _onnx(name: str, place: str, **facts: Any) -> Backend:
    """An operator run by ONNX Runtime."""
    return _ours(name, place, requires=("onnx", "onnxruntime"), extra="onnx", **facts)


OURS: Final = (
    _ours("torch.repeat_kv", "torch_repeat_kv:attention"),
    _ours("torch.repeat_interleave", "torch_repeat_interleave:attention"),
    _ours("torch.q_fold", "torch_q_fold:attention"),
    _ours("torch.grouped_matmul", "torch_grouped_matmul:attention"),
    _ours("torch.broadcast_matmul", "torch_broadcast_matmul:attention"),
    _ours("torch.sdpa", "torch_sdpa:attention"),
    _ours("torch.sdpa_gqa", "torch_sdpa_gqa:attention"),
    _ours("torch.sdpa_gqa_flash", "torch_sdpa_gqa_flash:flash"),
    _ours("torch.sdpa_gqa_math", "torch_sdpa_gqa_math:math"),
    _ours("torch.fused_grouped", "torch_fused_grouped:attention"),
    _ours("torch.flex_attention", "torch_flex_attention:attention"),
    _ours("numpy.split_kv", "numpy_split_kv:attention"),
    _runtime("numba.scalar", "numba_scalar:attention", "numba"),
    _runtime("mlx.sdpa", "mlx_sdpa:attention", "mlx"),
    _runtime("mlx.rope_half", "mlx_sdpa:rope_half", "mlx", kind="rotary"),
    _runtime("mlx.rope_interleaved", "mlx_sdpa:rope_interleaved", "mlx", kind="rotary"),
    # Its threads make any later fork of the process unsafe.
    _runtime("jax.dot_product_attention", "jax_attention:attention", "jax", **COMPILES),
    # Its interpreter must be chosen before it is loaded: a process of its own.
    _runtime("triton.decode", "triton_attention:decode", "triton", **COMPILES),
    _runtime("triton.split_kv", "triton_attention:split_kv", "triton", **COMPILES),
    _runtime("mla.triton_absorbed", "triton_attention:absorbed", "triton", kind="mla", aborts=True),
    _runtime(
        "executorch.xnnpack", "executorch_xnnpack:xnnpack", "executorch", **COMPILES, slow=True
    ),
    _ours("inductor.spelled_out", "inductor_compiled:spelled_out", **INDUCTOR),
    _ours("inductor.flex_attention", "inductor_compiled:flex", **INDUCTOR),
    _runtime("transformers.eager", "transformers_attention:eager", "transformers"),
    _runtime("transformers.sdpa", "transformers_attention:sdpa", "transformers"),
    _runtime("transformers.flex", "transformers_attention:flex", "transformers"),
    _runtime("openvino.sdpa", "openvino_sdpa:sdpa", "openvino"),
    _runtime("openvino.sdpa_default", "openvino_sdpa:sdpa_default", "openvino"),
    _runtime("openvino.trace", "openvino_trace:trace", "openvino", kind="converter"),
    _runtime(
        "openvino.trace_default", "openvino_trace:trace_default", "openvino", kind="converter"
    ),
    _cuda("flash_attn.attention", "flash_attn:attention", "flash_attn", "flash-attn"),
    _cuda("flash_attn.varlen", "flash_attn_varlen:varlen", "flash_attn", "flash-attn", "varlen"),
    _cuda("flash_attn.paged", "flash_attn_paged:paged", "flash_attn", "flash-attn", "paged"),
    _cuda("flashinfer.attention", "flashinfer:attention", "flashinfer", "flashinfer-python"),
    _cuda("flashinfer.paged", "flashinfer:paged", "flashinfer", "flashinfer-python", "paged"),
    _cuda("xformers.attention", "xformers:attention", "xformers", "xformers"),
    _cuda("mla.flashmla", "flashmla:attention", "flash_mla", FLASH_MLA, "mla"),
    _cuda("vllm.paged_v1", "vllm:paged_v1", "vllm", "vllm", "paged"),
    _cuda("vllm.unified", "vllm_unified:unified", "vllm", "vllm", "paged"),
    _ours("mla.full_sequence", "mla_expanded:full_sequence", kind="mla"),
    _ours("mla.expanded", "mla_expanded:step", kind="mla"),
    _ours("mla.absorbed", "mla_absorbed:attention", kind="mla"),
    _ours("mla.q_fold", "mla_absorbed:q_fold", kind="mla"),
    _ours("mla.sdpa", "mla_sdpa:sdpa", kind="mla"),
    _ours("mla.folded", "mla_folded:attention", kind="mla"),
    _ours("mla.split_kv", "mla_split_kv:attention", kind="mla"),
    _ours(
        "mla.deepseek_v2",
        "mla_transformers:v2",
        kind="mla",
        requires=("transformers",),
        extra="transformers",
    ),
    _ours(
        "mla.deepseek_v3",
        "mla_transformers:v3",
        kind="mla",
        requires=("transformers",),
        extra="transformers",
    ),
    _ours("varlen.one_by_one", "varlen_one_by_one:one_by_one", kind="varlen"),
    _ours("varlen.padded", "varlen_padded:padded", kind="varlen"),
    _ours("varlen.block_diagonal", "varlen_block_diagonal:block_diagonal", kind="varlen"),
    _ours("paged.gathered", "paged_torch:gathered", kind="paged"),
    _ours("paged.page_by_page", "paged_torch:page_by_page", kind="paged"),
    _ours("rotary.torch", "rotary_torch:rotary", kind="rotary"),
    _ours("rotary.torch_half", "rotary_torch:half", kind="rotary"),
    _ours("rotary.torch_interleaved", "rotary_torch:interleaved", kind="rotary"),
    _ours("rotary.complex", "rotary_complex:complex_numbers", kind="rotary"),
    _ours("rotary.float64_table", "rotary_torch:float64_table", kind="rotary"),
    _hugging_face("rotary.transformers_llama", "llama"),
    _hugging_face("rotary.transformers_gpt_neox", "gpt_neox"),
    _hugging_face("rotary.transformers_deepseek_v3", "deepseek_v3"),
    _onnx("onnxruntime.attention", "onnxruntime_attention:attention"),
    _onnx("onnxruntime.attention_lengths", "onnxruntime_attention:attention_lengths"),
    _onnx("onnxruntime.attention_past", "onnxruntime_attention_past:attention_past"),
    _onnx("onnxruntime.attention_scores", "onnxruntime_scores:mode_0"),
    _onnx("onnxruntime.attention_capped_scores", "onnxruntime_scores:mode_1"),
    _onnx("onnxruntime.attention_biased_scores", "onnxruntime_scores:mode_2"),
    _onnx("onnxruntime.attention_weights", "onnxruntime_scores:mode_3"),
    _onnx("onnxruntime.gqa", "onnxruntime_gqa:attention"),
    _onnx("onnxruntime.gqa_rotary_half", "onnxruntime_gqa_rotary:half"),
    _onnx("onnxruntime.gqa_rotary_interleaved", "onnxruntime_gqa_rotary:interleaved"),
    _onnx("onnxruntime.gqa_cache", "onnxruntime_gqa_cache:cache", kind="kv_cache"),
    _onnx("rotary.onnxruntime", "onnx_rotary:onnx_domain", kind="rotary"),
    _onnx("rotary.onnxruntime_microsoft", "onnx_rotary:microsoft", kind="rotary"),
    _ours("onnx.reference", "onnx_reference:attention", requires=("onnx",), extra="onnx"),
    _ours(
        "rotary.onnx_reference",
        "onnx_rotary:reference",
        kind="rotary",
        requires=("onnx",),
        extra="onnx",
    ),
    _ours(
        "onnx.export",
        "onnx_export:export",
        kind="converter",
        requires=("onnx", "onnxruntime", "onnxscript"),
        extra="onnx",
    ),
    _graph("coreml.trace", "trace"),
    _graph("coreml.export", "export"),
    _graph("coreml.trace_strict", "trace_strict"),
    _graph("coreml.export_strict", "export_strict"),
    _graph("coreml.trace_double", "trace_double"),
    _graph("coreml.export_double", "export_double"),
    _compressed("coreml.compressed", "compressed"),
    _compressed("coreml.compressed_double", "compressed_double"),
    _device("coreml.device_cpu", "cpu_only"),
    _device("coreml.device_gpu", "cpu_and_gpu"),
    _device("coreml.device_ne", "cpu_and_ne"),
    _device("coreml.device_all", "every_unit"),
    _ours(
        "coreai.export",
        "coreai_runtime:export",
        kind="converter",
        requires=("coreai", "coreai_torch"),
        extra="coreai",
        aborts=True,
    ),
    _ours("cache.contiguous", "cache_contiguous:cache", kind="kv_cache"),
    _ours("cache.preallocated", "cache_preallocated:cache", kind="kv_cache"),
    _ours("cache.ring", "cache_ring:cache", kind="kv_cache"),
    _ours("cache.paged", "cache_paged:cache", kind="kv_cache"),
    _ours("cache.latent", "cache_latent:cache", kind="kv_cache"),
    _ours("cache.int8_per_head", "cache_int8:per_head", kind="kv_cache"),
    _ours("cache.int8_per_channel", "cache_int8:per_channel", kind="kv_cache"),
    _ours("cache.int8_blocks", "cache_int8_blocks:cache", kind="kv_cache"),
    _ours(
        "cache.transformers_dynamic",
        "cache_transformers:dynamic",
        kind="kv_cache",
        requires=("transformers",),
        extra="transformers",
    ),
    _ours(
        "cache.transformers_static",
        "cache_transformers:static",
        kind="kv_cache",
        requires=("transformers",),
        extra="transformers",
    ),
    _ours(
        "cache.transformers_sliding",
        "cache_transformers:sliding",
        kind="kv_cache",
        requires=("transformers",),
        extra="transformers",
    ),
    _ours(
        "cache.transformers_hqq",
        "cache_hqq:cache",
        kind="kv_cache",
        requires=("transformers", "hqq"),
        extra="hqq",
    ),
)


@cache
def entries() -> Mapping[str, Backend]:
    """Every registered name; a broken third party is listed, with its ``trouble``."""
    found = {backend.name: backend for backend in OURS}
    for point in entry_points(group=GROUP):
        backend = _theirs(point)
        if backend.name in found:
            taken = found[backend.name]
            name = f"{backend.name} ({backend.distribution})"
            holder = taken.distribution or "attention-equivalence"
            backend = Backend(
                name=name,
                place=backend.place,
                distribution=backend.distribution,
                trouble=f"the name {taken.name} is taken by {holder}",
            )
        found.setdefault(backend.name, backend)
    return found


def _theirs(point: EntryPoint) -> Backend:
    distribution = point.dist.name if point.dist is not None else "an unknown distribution"
    return Backend(name=point.name, place=point.value, distribution=distribution)


def known_declaration(module: str, attribute: str) -> Declaration | None:
    """The declaration that ships for a callable that is not ours, by its qualified name."""
    from equivalence.backends.known_callables import KNOWN

    return KNOWN.get(f"{module}:{attribute}")
