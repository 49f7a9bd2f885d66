"""An implementation that makes every rounding its profile allows, each in the worst direction.

Written from the statement of the model in docs/bound.md and not from the bound: it returns, in
float64, what softmax attention comes to when each rounding is off by its full unit roundoff, and
the signs of all of them are chosen to move one element of the output as far as they can.
"""

import numpy as np

UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def pushed(values, push, unit, times=1):
    """``values`` after ``times`` roundings, each of them away in the direction ``push``."""
    up = np.sign(values) * push > 0
    return values * np.where(up, (1 + unit) ** times, (1 - unit) ** times)


def worst_output(inputs, exact, profile, element, side):
    """The element of each row, pushed up (side 1) or down (side -1): ``[B, H, Sq]``."""
    u, u_a = UNITS[profile.store or inputs.dtype], UNITS[profile.accumulate or inputs.dtype]
    u_out = max(u, UNITS[inputs.dtype])
    heads = inputs.kv_head_of
    key, value = inputs.key[:, heads], inputs.value[:, heads][..., element]
    width = inputs.query.shape[-1]
    push = side * np.sign(value[:, :, None] - exact.output[..., [element]])

    terms = inputs.scale_value * inputs.query[:, :, :, None] * key[:, :, None]
    terms = pushed(terms, push[..., None], u_a, width + 2)
    scores = pushed(terms, push[..., None], u, profile.query_roundings).sum(-1)
    scores = pushed(pushed(scores, push, u, profile.score_roundings), push, u_a, 4)
    if inputs.softcap is not None:
        stored = 3 if profile.score_roundings else 0
        scores = inputs.softcap * np.tanh(scores / inputs.softcap)
        scores = pushed(pushed(scores, push, u, stored), push, u_a, 11)
        scores = scores + push * np.abs(scores) * profile.tanh_error
    if inputs.bias is not None:
        scores = scores + inputs.bias
        scores = pushed(pushed(scores, push, u, profile.bias_roundings), push, u_a)
    scores = np.where(exact.visible, scores, -np.inf)
    seen = exact.visible.sum(-1)
    sinks = None if inputs.sinks is None else inputs.sinks[None, :, None, None]
    lowest = -1e4 if sinks is None else sinks  # an empty row has no top of its own
    top = np.maximum(scores.max(-1, keepdims=True), lowest)
    depth = np.where(exact.visible, scores - top, 0.0)
    weights = np.exp(pushed(depth, push, u_a, 4)) * (1 + push * profile.exp_ulps * u_a)
    weights = np.where(exact.visible, weights, 0.0)
    total = weights.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks - top)
    products = weights / np.where(seen[..., None] > 0, total, 1.0) * value[:, :, None]
    additions = seen + 6 * profile.blocks + 4
    stored = (1 + side * np.sign(products) * u) ** profile.probability_roundings
    products = products * stored * (1 + side * np.sign(products) * u_a) ** additions[..., None]
    if profile.merges:
        off = _lse_errors(exact, additions, u_a) + profile.exp_ulps * u_a
        products = products * np.exp(side * np.sign(products) * off)
    output = products.sum(-1)
    output = output * (1 + side * np.sign(output) * u_a) ** (additions + 1)
    return pushed(output, side, u_out)


def _lse_errors(exact, additions, u_a):
    """Each key is a part of its own, whose log-sum-exp is its score: ``[B, H, Sq, Skv]``."""
    lse = np.where(exact.seen > 0, exact.lse, 0.0)[..., None]
    scores = np.where(exact.visible, exact.scores, 0.0)
    more = np.log(np.maximum(exact.seen, 1))[..., None] + 2
    sizes = (np.abs(scores) + more) + (np.abs(lse) + more)
    return u_a * (2 * additions[..., None] + 4 * sizes + np.abs(scores - lse))


def worst_used(inputs, exact, profile, allowed):
    """The largest |error| / allowed that the adversary reaches, over all elements and sides."""
    worst = 0.0
    for element in range(inputs.value.shape[-1]):
        for side in (1, -1):
            output = worst_output(inputs, exact, profile, element, side)
            error = np.abs(output - exact.output[..., element])
            used = np.where(error == 0, 0.0, error / np.maximum(allowed[..., element], 1e-300))
            worst = max(worst, float(used[exact.seen > 0].max(initial=0.0)))
    return worst
