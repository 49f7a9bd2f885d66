"""torch.onnx.export as a converter, its graphs executed by ONNX Runtime."""

from importlib.util import find_spec

import pytest
import torch

for _needed in ("onnx", "onnxruntime", "onnxscript"):
    if find_spec(_needed) is None:  # not imported: onnxscript takes a second, in every worker
        pytest.skip(f"needs {_needed}", allow_module_level=True)

from equivalence import registry  # noqa: E402
from equivalence.audit.account import account_of  # noqa: E402
from equivalence.audit.read_onnx import read_onnx  # noqa: E402
from equivalence.converters.calling import conversion_of  # noqa: E402
from equivalence.converters.case import ConverterCase  # noqa: E402
from equivalence.converters.domain import ConverterDomain  # noqa: E402
from equivalence.converters.subject import ConverterSubject  # noqa: E402
from equivalence.laws import all_laws  # noqa: E402
from equivalence.masks import Mask  # noqa: E402
from equivalence.onnx.exporting import OPSETS  # noqa: E402

LAWS = {law.name: law for law in all_laws("converter")}
GROUPED = {"num_kv_heads": 2, "group_size": 2, "head_dim": 4, "kv_len": 3, "values": "normal"}


@pytest.fixture(scope="module")
def subject():
    return ConverterSubject(registry.entries()["onnx.export"].load(), ConverterDomain())


def status(subject, law, case):
    verdict = LAWS[law].check(case, subject)
    return verdict.status, verdict.trouble or verdict.reason


@pytest.mark.slow
@pytest.mark.parametrize("target", OPSETS)
@pytest.mark.parametrize("formulation", ["repeat_kv", "broadcast", "einsum", "sdpa_gqa"])
def test_each_opset_computes_what_the_module_means(subject, formulation, target):
    case = ConverterCase(formulation=formulation, target=target, **GROUPED)
    assert status(subject, "converted-agrees", case)[0] == "held"
    graph = conversion_of(subject.target, case).graph
    assert f"opset{graph.opset_import[0].version}" == target
    account = account_of(read_onnx(graph), name=formulation)
    repeats = formulation == "repeat_kv" or (formulation, target) == ("sdpa_gqa", "opset18")
    assert bool(account.of_heads) == repeats
    assert account.fused == (formulation == "sdpa_gqa" and target != "opset18")


@pytest.mark.slow
@pytest.mark.parametrize("target", OPSETS)
@pytest.mark.parametrize("formulation", ["repeat_kv", "q_fold_decode", "sdpa_gqa", "mla_absorbed"])
def test_other_lengths_than_the_example_s_agree(subject, formulation, target):
    heads = {"group_size": 2, "head_dim": 4} if formulation == "mla_absorbed" else GROUPED
    case = ConverterCase(formulation=formulation, target=target, **heads).but(
        shapes="range", kv_len=9, example_len=4, values="normal"
    )
    assert status(subject, "other-lengths-agree", case)[0] == "held"


@pytest.mark.slow
@pytest.mark.parametrize("formulation", ["sdpa_gqa", "q_fold_prefill"])
def test_masks_and_half_precision_agree(subject, formulation):
    mask = Mask(pattern="random", size=60, axes="q", form="float", bias=1.0)
    case = ConverterCase(
        formulation=formulation, dtype="float16", target="opset23", mask=mask, q_len=3, **GROUPED
    )
    assert status(subject, "converted-agrees", case)[0] in ("held", "vacuous")


@pytest.mark.slow
def test_a_write_to_a_buffer_is_still_dropped(subject):
    for fault in subject.declared.known_faults:
        verdict = LAWS[fault.law].check(fault.case, subject)
        assert verdict.trouble is not None
        assert verdict.trouble.kind == fault.trouble


def test_a_graph_of_another_head_order_is_caught(subject, monkeypatch):
    """As a converter that lost the order of heads would make it, without the cost of an export."""
    case = ConverterCase(formulation="sdpa_gqa", **GROUPED)

    class Swapped:
        graph = None

        def __call__(self, query, key, value):
            order = [h % key.shape[1] for h in range(query.shape[1])]
            return torch.nn.functional.scaled_dot_product_attention(
                query, key[:, order], value[:, order]
            )

    from equivalence.converters import calling

    monkeypatch.setattr(calling, "conversion_of", lambda target, case: Swapped())
    verdict = LAWS["converted-agrees"].check(
        case, ConverterSubject(subject.target, ConverterDomain())
    )
    assert verdict.status == "broken"


def test_an_unknown_opset_is_named():
    from equivalence.errors import InvalidRequest
    from equivalence.onnx.exporting import model_of

    with pytest.raises(InvalidRequest, match="target='opset17' is not one of opset18, opset23"):
        model_of(torch.nn.Identity(), (torch.zeros(1),), target="opset17")


def test_a_case_of_a_converter_can_be_replayed(tmp_path, capsys):
    """Without an export: the module itself stands for what was converted."""
    from equivalence.cli import run

    path = tmp_path / "mine.py"
    path.write_text(
        "import equivalence\n"
        "@equivalence.converter(dtypes=['float32'], profile='graph')\n"
        "def convert(module, example_inputs):\n"
        "    return module\n"
    )
    case = "ConverterCase(formulation='sdpa_gqa', num_kv_heads=2, group_size=2)"
    assert run(["replay", f"{path}:convert", case]) == 0
    assert "holds" in capsys.readouterr().out
