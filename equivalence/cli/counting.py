"""What `equivalence kvspec` does once its options are parsed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from equivalence.accounting.answers import Answer, Question, answer, spec_of
from equivalence.accounting.designs import Design, compare_designs
from equivalence.accounting.models import model_names
from equivalence.accounting.storage import storage_named
from equivalence.cli.destination import stdout_kept_for, write_whole
from equivalence.cli.validation import above_zero, at_least
from equivalence.errors import InvalidRequest, require

SHAPES: Final[dict[str, dict[str, Any]]] = {
    "16 heads of 128": {"num_heads": 16, "head_dim": 128},
    "a layer of DeepSeek-V2": {"num_heads": 128, "head_dim": 128, "kv_heads": (8,)},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What `--compare` compares at, as it was written."""

    heads: int | None
    head_dim: int | None
    kv_heads: str | None

    def refuse_without_compare(self) -> None:
        """Options that say nothing without ``--compare``."""
        for option, value in (
            ("--heads", self.heads),
            ("--head-dim", self.head_dim),
            ("--kv-heads", self.kv_heads),
        ):
            require(value is None, f"{option} {value} is about --compare, which is not given")

    def counts(self) -> tuple[int, ...]:
        """The heads of GQA."""
        if self.kv_heads is None:
            return ()
        return tuple(whole_numbers("--kv-heads", self.kv_heads))


def whole_numbers(option: str, text: str) -> list[int]:
    """``12,6,4`` as whole numbers of at least 1."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) >= 1 for part in parts):
        raise InvalidRequest(f"{option} {text!r} must be whole numbers above 0, as in 12,6,4")
    return [int(part) for part in parts]


def count(
    models: Sequence[str],
    *,
    dtype: str,
    scale_group: int | None,
    tokens: int,
    encoder_tokens: int | None,
    page_size: int,
    tensor_parallel: int,
    memory: float | None,
    weights: float,
    share: float,
    chart: str | None,
    json: str | None,
) -> int:
    """The answer of each model as a table, and in JSON; without a model, the known names."""
    storage = storage_named(dtype, option="--dtype")
    if scale_group is not None:
        storage = storage.grouped(scale_group)
    at_least("--context", tokens, 1)
    at_least("--page-size", page_size, 1)
    at_least("--tensor-parallel", tensor_parallel, 1)
    at_least("--encoder-tokens", encoder_tokens or 0, 0)
    above_zero("--memory", memory)
    at_least("--weights", weights, 0)
    require(0 < share <= 1, f"--share {share:g} must be above 0 and at most 1")
    require(memory is not None or not weights, "--weights says nothing without --memory")
    require(chart is None, "--chart draws what --compare compares")
    question = Question(
        storage=storage,
        tokens=tokens,
        encoder_tokens=encoder_tokens,
        page_size=page_size,
        tensor_parallel=tensor_parallel,
        memory_bytes=None if memory is None else memory * 2**30,
        weights_bytes=weights * 1e9,
        share=share,
    )
    answers = [answer(spec_of(text), question) for text in models or model_names()]
    with stdout_kept_for(json):
        _print_answers(answers, storage.name, tensor_parallel)
    if json is not None:
        facts = {"dtype": storage.name, "tensor_parallel": tensor_parallel}
        _write(json, {**facts, "models": [one.facts() for one in answers]})
    return 0


def compare(models: Sequence[str], shape: Shape, *, chart: str | None, json: str | None) -> int:
    """MHA, GQA, MQA and MLA at one shape, or at that of each model."""
    if chart is not None:
        from equivalence.report.charts import require_chart

        require_chart("--chart", chart)
    compared = {name: compare_designs(**sizes) for name, sizes in _shapes(models, shape).items()}
    with stdout_kept_for(json):
        _print_designs(compared)
    if chart is not None:
        from equivalence.report.charts import designs_chart

        designs_chart(compared, chart)
    if json is not None:
        _write(json, {"shapes": [_design_facts(*item) for item in compared.items()]})
    return 0


def _shapes(models: Sequence[str], shape: Shape) -> dict[str, dict[str, Any]]:
    own = {"kv_heads": shape.counts()} if shape.kv_heads is not None else {}
    if models:
        require(
            shape.heads is None and shape.head_dim is None,
            f"--heads and --head-dim come from {models[0]}; leave them out",
        )
        return {text: {**_model_shape(text), **own} for text in models}
    if shape.heads is None and shape.head_dim is None:
        return {name: {**sizes, **own} for name, sizes in SHAPES.items()}
    heads = 16 if shape.heads is None else shape.heads
    width = 128 if shape.head_dim is None else shape.head_dim
    at_least("--heads", heads, 1)
    at_least("--head-dim", width, 1)
    return {f"{heads} heads of {width}": {"num_heads": heads, "head_dim": width, **own}}


def _model_shape(text: str) -> dict[str, Any]:
    heads = spec_of(text).layers[0]
    key = heads.kept[0]
    if key.split:
        return {
            "num_heads": heads.num_heads,
            "head_dim": key.width,
            "kv_heads": tuple(sorted({key.count, *_parts(heads.num_heads)}, reverse=True)),
        }
    return {
        "num_heads": heads.num_heads,
        "head_dim": heads.mha_elements // (2 * heads.num_heads),
        "latent_dim": key.width,
        "rope_dim": heads.kept[1].width,
    }


def _parts(heads: int) -> list[int]:
    return [heads // part for part in (4, 8) if heads % part == 0]


def _print_answers(answers: Sequence[Answer], storage: str, devices: int) -> None:
    from equivalence.report.kvspec import answers_table
    from equivalence.report.terminal import Printer

    Printer().table(answers_table(answers, storage=storage, devices=devices))


def _print_designs(compared: dict[str, list[Design]]) -> None:
    from equivalence.report.kvspec import designs_table
    from equivalence.report.terminal import Printer

    printer = Printer()
    for number, (name, designs) in enumerate(compared.items()):
        if number:
            printer.line()
        printer.line(f"{name}, elements per token and layer", "held")
        printer.table(designs_table(designs))


def _design_facts(name: str, designs: list[Design]) -> dict[str, Any]:
    return {
        "shape": name,
        "designs": [
            {
                "design": one.name,
                "elements": one.elements,
                "kv_heads": one.kv_heads,
                "smaller_than_mha": one.smaller,
            }
            for one in designs
        ],
    }


def _write(path: str, facts: dict[str, Any]) -> None:
    from equivalence.report.json import strict

    write_whole("--json", path, strict({"schema": 1, **facts}))
