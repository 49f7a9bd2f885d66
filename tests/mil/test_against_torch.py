"""Operations for which coremltools infers no value, against torch; and what is refused."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from coremltools.converters.mil.mil import types

import equivalence
from equivalence.mil.graph import ExecutionError, Graph
from equivalence.mil.registry import operations
from tests.mil.building import TARGET, evaluated, ops, program_of

RNG = np.random.default_rng(3)


def drawn(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def test_layer_norm() -> None:
    x, gamma, beta = drawn(2, 3, 5), drawn(5), drawn(5)
    (ours,) = evaluated(
        lambda x: ops.layer_norm(x=x, axes=[-1], gamma=gamma, beta=beta, epsilon=1e-5), {"x": x}
    )
    tensors = (torch.from_numpy(a) for a in (x, gamma, beta))
    own, g, b = tensors
    theirs = torch.nn.functional.layer_norm(own, (5,), g, b, 1e-5)
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("mode", "torch_mode"), [("EXACT", "none"), ("TANH_APPROXIMATION", "tanh")]
)
def test_gelu(mode: str, torch_mode: str) -> None:
    x = drawn(3, 4)
    (ours,) = evaluated(lambda x: ops.gelu(x=x, mode=mode), {"x": x})
    theirs = torch.nn.functional.gelu(torch.from_numpy(x), approximate=torch_mode)
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5, atol=1e-6)


def test_projection_by_a_one_by_one_convolution() -> None:
    x, weight = drawn(1, 6, 1, 4), drawn(3, 6, 1, 1)
    (ours,) = evaluated(lambda x: ops.conv(x=x, weight=weight), {"x": x})
    np.testing.assert_allclose(ours[0, :, 0], weight[:, :, 0, 0] @ x[0, :, 0], rtol=1e-5)


def test_einsum() -> None:
    x, y = drawn(2, 3, 4, 5), drawn(2, 5, 4, 6)
    equation = "nchw,nwhu->nchu"
    (ours,) = evaluated(lambda x, y: ops.einsum(values=[x, y], equation=equation), {"x": x, "y": y})
    np.testing.assert_allclose(ours, np.einsum(equation, x, y), rtol=1e-4, atol=1e-5)


def test_scatters() -> None:
    data, updates = drawn(4, 3), drawn(2, 3)
    indices = np.array([2, 0], np.int32)
    for mode in ("update", "add"):
        (ours,) = evaluated(
            lambda d, u, mode=mode: ops.scatter(
                data=d, indices=indices, updates=u, axis=0, mode=mode
            ),
            {"d": data, "u": updates},
        )
        expected = data.copy()
        expected[indices] = updates + (data[indices] if mode == "add" else 0)
        np.testing.assert_allclose(ours, expected)
    along = np.array([[1, 0, 3]], np.int32)
    (ours,) = evaluated(
        lambda d, u: ops.scatter_along_axis(
            data=d, indices=along, updates=u, axis=0, mode="update"
        ),
        {"d": data, "u": updates[:1]},
    )
    own = torch.from_numpy(data.copy()).scatter(
        0, torch.from_numpy(along).long(), torch.from_numpy(updates[:1])
    )
    np.testing.assert_allclose(ours, own.numpy())


def test_wide_sums_in_float32_and_double_rounds_nothing() -> None:
    x = np.full((1, 4096), 1.0, np.float16)
    y = np.full((4096, 1), 1.0, np.float16)
    x[0, 0] = 2048.0
    build = lambda x, y: ops.matmul(x=x, y=y)  # noqa: E731
    assert float(evaluated(build, {"x": x, "y": y}, "wide")[0][0, 0]) == 6144.0
    third = np.array([[1 / 3]], np.float16)
    (exact,) = evaluated(lambda x: ops.mul(x=x, y=x), {"x": third}, "double")
    assert exact.dtype == np.float64
    assert exact[0, 0] == float(third[0, 0]) ** 2


def test_a_state_is_kept_between_calls_and_forgotten_with_a_new_one() -> None:
    @ops.program(
        input_specs=[
            ops.TensorSpec((1, 2), types.fp16),
            ops.StateTensorSpec((1, 2), types.fp16),
        ],
        opset_version=TARGET,
    )
    def counting(x, total):  # type: ignore[no-untyped-def]
        before = ops.read_state(input=total)
        return ops.coreml_update_state(state=total, value=ops.add(x=before, y=x))

    graph = Graph(counting)
    assert graph.stateful
    state, one = graph.make_state(), {"x": torch.ones(1, 2)}
    outcomes = [next(iter(graph(one, state).values()))[0, 0].item() for _ in range(3)]
    assert outcomes == [1.0, 2.0, 3.0]
    assert next(iter(graph(one, graph.make_state()).values()))[0, 0].item() == 1.0
    with pytest.raises(equivalence.InvalidRequest, match="needs a state 'total'"):
        graph(one)


def test_an_unknown_operation_is_refused_by_name() -> None:
    program = program_of(lambda x: ops.local_response_norm(x=x, size=2), {"x": drawn(1, 3, 2, 2)})
    with pytest.raises(equivalence.Unsupported, match="cannot be evaluated: local_response_norm"):
        Graph(program)


def test_an_operation_that_fails_says_its_name() -> None:
    indices = np.array([7], np.int32)
    with pytest.raises(ExecutionError, match="gather: an index is outside an axis of length 3"):
        evaluated(lambda x, i: ops.gather(x=x, indices=i, axis=0), {"x": drawn(3), "i": indices})


def test_every_function_takes_its_tensors_first() -> None:
    table = operations()
    assert len(table) >= 100
    for how in table.values():
        taken = list(inspect.signature(how.function).parameters)
        assert taken[: len(how.tensors)] == list(how.tensors), how.name
