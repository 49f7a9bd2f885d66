"""A failing case as a program that needs only torch and the kernel."""

from __future__ import annotations

import base64
import json
import pprint
import textwrap
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from equivalence.bounds import allowance
from equivalence.calling import LocalTarget
from equivalence.declaration import Declaration
from equivalence.errors import InvalidRequest, Unsupported
from equivalence.inputs import AttentionInputs, attention_inputs
from equivalence.profiles import profile_for, profile_named
from equivalence.reference import attention
from equivalence.replay import case_text
from equivalence.report.failure import headline
from equivalence.results import Failure

if TYPE_CHECKING:
    import jinja2
    import torch

LITERAL_ELEMENTS: Final = 512
SEVERAL_CALLS: Final = frozenset(
    (
        "disagreement",
        "batch-dependence",
        "hidden-keys",
        "future-keys",
        "ignored-option",
        "answered-refusal",
        "masked-rows",
        "nan-leak",
        "nan-laundered",
        "lse",
        "gradient",
        "declaration",
        "refusal",
    )
)


def standalone_script(
    failure: Failure,
    target_text: str,
    *,
    declaration: Declaration | None = None,
    options: Mapping[str, str] | None = None,
) -> str:
    """The source of a program that makes the same call and judges it against float64 attention.

    target_text: ``package.module:attr`` or ``path/to/file.py:attr``, which the program imports.
    declaration, options: how the target is called; by default with no option beyond the trio.
    The program exits with 1 while the fault shows and with 0 once it is gone.
    """
    declaration = declaration or Declaration()
    inputs = attention_inputs(failure.case)
    recorded, keywords = _as_called(inputs, declaration, dict(options or {}))
    operands = [(name, literal(recorded[name])) for name in ("query", "key", "value")]
    module, attribute = _import_of(target_text)
    shared, passed = _options(keywords, dict(options or {}))
    allowed = _allowed(inputs, declaration, failure)
    left, right = inputs.band or (-1, -1)
    diagonal = bool(
        inputs.causal == "lower_right" or max(left, right) >= 0 or inputs.alibi_slopes is not None
    )
    return _template().render(
        headline=_one_line(headline(target_text, failure.trouble)),
        case=_one_line(case_text(failure.case)),
        law=failure.law,
        replay=_one_line(failure.replay),
        replay_text=json.dumps(failure.replay),
        path=json.dumps(module) if module.endswith(".py") else "",
        module=json.dumps(module),
        attribute=attribute,
        bshd=declaration.layout == "BSHD",
        dtype=inputs.dtype,
        kv_len=inputs.key.shape[2],
        kv_head_of=inputs.kv_head_of.tolist(),
        scale=repr(float(inputs.scale_value)),
        softcap=inputs.softcap,
        positions=diagonal or inputs.causal is not None or inputs.kv_lengths is not None,
        diagonal=diagonal,
        causal=inputs.causal,
        left=left,
        right=right,
        mask=None if inputs.mask is None else "bool" if inputs.mask.dtype == bool else "float",
        sinks=inputs.sinks is not None,
        alibi=inputs.alibi_slopes is not None,
        kv_lengths=inputs.kv_lengths is not None,
        memory=inputs.memory,
        operands=operands,
        globals=shared,
        options=passed,
        arrays=declaration.arrays,
        device=declaration.device,
        profile=_profile_name(inputs, declaration, failure),
        allowed=allowed,
        kind=failure.trouble.kind,
        single_call=failure.trouble.kind not in SEVERAL_CALLS,
        unpacks=any("unpacked(" in text for _, text in [*operands, *shared, ("", allowed)]),
    )


def literal(tensor: torch.Tensor) -> str:
    """A torch expression for ``tensor``: same numbers, dtype and strides.

    Up to 512 numbers are written out (each is exact in decimal), more as base64 of their bytes.
    """
    import torch

    dtype = str(tensor.dtype)
    if not tensor.is_contiguous():
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        span = 1 + sum((size - 1) * stride for size, stride in steps)
        flat = torch.as_strided(tensor, (span,), (1,), tensor.storage_offset())
        view = f".as_strided({tuple(tensor.shape)}, {tensor.stride()})"
        return literal(flat) + view
    if tensor.numel() == 0:
        return f"torch.empty({tuple(tensor.shape)}, dtype={dtype})"
    if tensor.numel() <= LITERAL_ELEMENTS:
        numbers = pprint.pformat(tensor.tolist(), width=92, compact=True)
        numbers = textwrap.indent(numbers, " " * 8).lstrip()
        return f"torch.tensor({numbers}, dtype={dtype})"
    raw = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
    packed = "\n".join(textwrap.wrap(base64.b64encode(raw).decode(), 96))
    shape = ", ".join(map(str, tensor.shape))
    return f'unpacked("""\n{packed}\n""", {dtype}, {shape})'


def _as_called(
    inputs: AttentionInputs, declaration: Declaration, options: dict[str, str]
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors and keywords of the very call that the harness makes, caught on their way."""
    caught: dict[str, Any] = {}

    def catch(query: Any, key: Any, value: Any, **keywords: Any) -> None:
        caught.update(query=query, key=key, value=value, keywords=keywords)
        raise Unsupported("only recorded")

    as_torch = declaration.but(arrays="torch", device="cpu")
    LocalTarget(name="recorder", function=catch, declaration=as_torch, options=options).call(inputs)
    keywords = caught.pop("keywords")
    return caught, keywords


def _options(
    keywords: Mapping[str, Any], options: Mapping[str, str]
) -> tuple[list[tuple[str, str]], str]:
    """Tensor options as named globals, and the dictionary of all options as source."""
    import torch

    contract = {keyword: name for name, keyword in options.items()}
    shared, passed = [], []
    for keyword, value in keywords.items():
        if isinstance(value, torch.Tensor):
            name = contract.get(keyword, keyword)
            shared.append((name, literal(value)))
            passed.append(f"{json.dumps(keyword)}: {name}.clone()")
        else:
            passed.append(f"{json.dumps(keyword)}: {value!r}")
    return shared, "{" + ", ".join(passed) + "}"


def _profile_name(inputs: AttentionInputs, declaration: Declaration, failure: Failure) -> str:
    return failure.trouble.profile or profile_for(inputs.dtype, declaration.profile).name


def _allowed(inputs: AttentionInputs, declaration: Declaration, failure: Failure) -> str:
    import torch

    exact = attention(inputs)
    profile = profile_named(_profile_name(inputs, declaration, failure))
    bound = allowance(inputs, exact, profile)
    judged = (bound.in_domain & (exact.seen > 0))[..., None]
    allowed = np.where(judged, bound.allowed, np.nan)
    if allowed.size and bool((allowed == allowed.flat[0]).all()):
        return f"torch.tensor({float(allowed.flat[0])!r}, dtype=torch.float64)"
    return literal(torch.from_numpy(np.ascontiguousarray(allowed)))


def _import_of(target_text: str) -> tuple[str, str]:
    module, colon, attribute = target_text.rpartition(":")
    names = attribute.split(".")
    if not colon or not module or not all(name.isidentifier() for name in names):
        raise InvalidRequest(
            f"a script needs a target written as module:attr or file.py:attr, not {target_text!r}"
        )
    return module, "." + attribute


def _one_line(text: str) -> str:
    return " ".join(text.split())


@cache
def _template() -> jinja2.Template:
    import jinja2

    source = files("equivalence.report").joinpath("templates/script.py.jinja").read_text("utf-8")
    room = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    return room.from_string(source)
