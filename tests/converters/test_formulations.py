"""Every formulation through the converters of ONNX and OpenVINO: right, or its fault declared."""

import pytest

from equivalence import registry
from equivalence.converters.case import ConverterCase
from equivalence.converters.domain import ConverterDomain
from equivalence.converters.formulations import FORMULATIONS, formulation_named
from equivalence.converters.subject import ConverterSubject
from equivalence.laws import all_laws
from equivalence.onnx.exporting import OPSETS

LAWS = {law.name: law for law in all_laws("converter")}
# Dropped without a word; a size that depends on numbers; an index of a type that ONNX has not.
OF_ONNX = {"cache_one_hot": "known", "cache_slice": "refused", "cache_indexed": "refused"}
STATES = [name for name, one in FORMULATIONS.items() if one.family == "cache"]


def subject_of(name):
    backend = registry.entries()[name]
    if (why := backend.available()) is not True:
        pytest.skip(str(why))
    return ConverterSubject(backend.load(), ConverterDomain())


def case_of(formulation, **more):
    """Two groups of two heads, as far as the formulation has groups."""
    about = formulation_named(formulation)
    sizes = {"head_dim": 4, "kv_len": 3, "values": "normal", **more}
    if about.family in ("attention", "cache"):
        sizes["num_kv_heads"] = 2
    if about.family != "rotary" and not about.equal_heads:
        sizes["group_size"] = 2
    return ConverterCase(formulation=formulation, **sizes)


def told(subject, case):
    """What the first law that speaks about the case says: "held", "known", or what is wrong."""
    writes = case.formulation in STATES and case.formulation != "cache_read_only"
    law = LAWS["state-writes-land" if writes else "converted-agrees"]
    verdict = law.check(case, subject)
    if verdict.trouble is None:
        return verdict.status
    faults = subject.target.declaration.known_faults
    known = any(
        f.law == law.name and f.explains(law.name, verdict.trouble.kind, case) for f in faults
    )
    return "known" if known else verdict.trouble.text


@pytest.mark.slow
@pytest.mark.parametrize("target", OPSETS)
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_onnx_export_is_right_or_its_fault_is_known(formulation, target):
    found = told(subject_of("onnx.export"), case_of(formulation, target=target))
    assert found == OF_ONNX.get(formulation, "held")


@pytest.mark.slow
@pytest.mark.parametrize("formulation", [name for name in FORMULATIONS if name not in STATES])
def test_a_trace_of_openvino_is_right(formulation):
    assert told(subject_of("openvino.trace"), case_of(formulation)) == "held"


@pytest.mark.slow
@pytest.mark.parametrize("formulation", ["q_fold_decode", "sdpa_gqa", "rotary_half"])
def test_a_trace_in_the_precision_that_openvino_chooses_is_right(formulation):
    assert told(subject_of("openvino.trace_default"), case_of(formulation)) == "held"


def test_a_trace_keeps_no_state_and_says_so():
    assert told(subject_of("openvino.trace"), case_of("cache_slice")) == "refused"
