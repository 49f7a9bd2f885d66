"""Operations on one element at a time, with broadcasting."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from equivalence.mil.registry import operation

BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "pow": torch.pow,
    "equal": torch.eq,
    "not_equal": torch.ne,
    "less": torch.lt,
    "less_equal": torch.le,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
}
UNARY = {
    "abs": torch.abs,
    "acos": torch.acos,
    "asin": torch.asin,
    "atan": torch.atan,
    "atanh": torch.atanh,
    "ceil": torch.ceil,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "erf": torch.erf,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "floor": torch.floor,
    "logical_not": torch.logical_not,
    "round": torch.round,
    "sign": torch.sign,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "sqrt": torch.sqrt,
    "square": torch.square,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
}

for _name, _function in BINARY.items():
    operation(_name, tensors="x y")(lambda x, y, _f=_function: _f(x, y))
for _name, _function in UNARY.items():
    operation(_name)(lambda x, _f=_function: _f(x))


@operation("real_div", tensors="x y")
def real_div(x: Tensor, y: Tensor) -> Tensor:
    """x / y; between whole numbers the fraction is cut off."""
    if x.is_floating_point():
        return torch.div(x, y)
    return torch.div(x, y, rounding_mode="trunc")


@operation("floor_div", tensors="x y")
def floor_div(x: Tensor, y: Tensor) -> Tensor:
    """The largest whole number that is not above x / y."""
    return torch.floor_divide(x, y)


@operation("mod", tensors="x y")
def mod(x: Tensor, y: Tensor) -> Tensor:
    """x - y floor(x / y)."""
    return torch.remainder(x, y)


@operation("cast")
def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """``x`` in another type; a fraction is cut off."""
    return x.to(dtype)


@operation("identity")
def identity(x: Tensor) -> Tensor:
    """``x`` itself."""
    return x


@operation("inverse", accumulates=True)
def inverse(x: Tensor, epsilon: float = 1e-4) -> Tensor:
    """1 / (x + epsilon)."""
    return torch.reciprocal(x + epsilon)


@operation("rsqrt", accumulates=True)
def rsqrt(x: Tensor, epsilon: float = 1e-12) -> Tensor:
    """1 / sqrt(x + epsilon)."""
    return torch.rsqrt(x + epsilon)


@operation("log", accumulates=True)
def log(x: Tensor, epsilon: float = 1e-45) -> Tensor:
    """log(x + epsilon)."""
    return torch.log(x + epsilon)


@operation("clip")
def clip(x: Tensor, alpha: float, beta: float) -> Tensor:
    """``x`` kept between alpha and beta."""
    return torch.clamp(x, alpha, beta)


@operation("threshold")
def threshold(x: Tensor, alpha: float) -> Tensor:
    """The larger of ``x`` and alpha."""
    return torch.clamp(x, min=alpha)


@operation("relu6")
def relu6(x: Tensor) -> Tensor:
    """``x`` kept between 0 and 6."""
    return torch.clamp(x, 0.0, 6.0)


@operation("silu", accumulates=True)
def silu(x: Tensor) -> Tensor:
    """x sigmoid(x)."""
    return functional.silu(x)


@operation("softplus", accumulates=True)
def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x)."""
    return torch.logaddexp(x, torch.zeros_like(x))


@operation("leaky_relu")
def leaky_relu(x: Tensor, alpha: float) -> Tensor:
    """``x`` where it is positive, alpha x elsewhere."""
    return torch.where(x >= 0, x, alpha * x)


@operation("elu", accumulates=True)
def elu(x: Tensor, alpha: float) -> Tensor:
    """``x`` where it is positive, alpha (e^x - 1) elsewhere."""
    return torch.where(x > 0, x, alpha * torch.expm1(x))


@operation("gelu", accumulates=True)
def gelu(x: Tensor, mode: str = "EXACT") -> Tensor:
    """x Phi(x), or one of its two usual approximations."""
    if mode == "SIGMOID_APPROXIMATION":
        return x * torch.sigmoid(1.702 * x)
    return functional.gelu(x, approximate="tanh" if mode == "TANH_APPROXIMATION" else "none")
