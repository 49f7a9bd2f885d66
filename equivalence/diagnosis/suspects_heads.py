"""Wrong heads: another map, permuted outputs, heads or batch rows mixed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from equivalence.diagnosis.imagining import (
    Sight,
    Suspect,
    World,
    from_weights,
    rearranged,
    with_heads,
    with_visible,
)
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs
from equivalence.reference import attention

Rule = Callable[[int, int], Array]
RULES: dict[str, tuple[str, Rule]] = {
    "interleaved": ("h % num_kv_heads", lambda g, n: np.arange(g * n) % n),
    "grouped": ("h // group_size", lambda g, n: np.arange(g * n) // g),
    "all on head 0": ("0", lambda g, n: np.zeros(g * n, int)),
    "reversed": ("num_kv_heads - 1 - h // group_size", lambda g, n: n - 1 - np.arange(g * n) // g),
    "shifted by one": ("(h // group_size + 1) % num_kv_heads", lambda g, n: _shift(g, n, 1)),
    "shifted back by one": ("(h // group_size - 1) % num_kv_heads", lambda g, n: _shift(g, n, -1)),
    "all on the last head": ("num_kv_heads - 1", lambda g, n: np.full(g * n, n - 1)),
    "clipped": (
        "min(h, num_kv_heads - 1)",
        lambda g, n: np.minimum(np.arange(g * n), n - 1),
    ),
    "divided by num_kv_heads": (
        "min(h // num_kv_heads, num_kv_heads - 1)",
        lambda g, n: np.minimum(np.arange(g * n) // n, n - 1),
    ),
    "shifted": (
        "min(h >> log2(group_size) rounded down, num_kv_heads - 1)",
        lambda g, n: np.minimum(np.arange(g * n) >> (g.bit_length() - 1), n - 1),
    ),
    "off by one": (
        "min((h + 1) // group_size, num_kv_heads - 1)",
        lambda g, n: np.minimum((np.arange(g * n) + 1) // g, n - 1),
    ),
}


def _shift(group: int, heads: int, by: int) -> Array:
    return (np.arange(group * heads) // group + by) % heads


def head_maps(sight: Sight) -> Iterator[Suspect]:
    """Every named map, for keys and values together and for either alone."""
    inputs = sight.inputs
    expected = inputs.kv_head_of
    kv_heads = inputs.key.shape[1]
    group = len(expected) // kv_heads
    for cost, (name, (formula, rule)) in enumerate(RULES.items()):
        found = rule(group, kv_heads)
        if (found == expected).all():
            continue
        head = int(np.argmax(found != expected))
        fact = (
            f"query head {head} reads kv head {found[head]}, expected {expected[head]}: "
            f"the map is {name} ({formula})"
        )
        declare = f"head_order={name}" if name in ("grouped", "interleaved") else ""
        yield Suspect(
            kind="head-mapping",
            sentence=fact,
            imagine=partial(_by_rule, rule=rule, keys=True, values=True),
            cost=2 + cost,
            declare=declare,
        )
        for side in ("keys", "values"):
            yield Suspect(
                kind="head-mapping",
                sentence=f"of the {side} alone, {fact}",
                imagine=partial(_by_rule, rule=rule, keys=side == "keys", values=side == "values"),
                cost=12 + cost,
            )
    yield from _solved_maps(sight)


def _by_rule(inputs: AttentionInputs, *, rule: Rule, keys: bool, values: bool) -> AttentionInputs:
    kv_heads = inputs.key.shape[1]
    found = rule(inputs.query.shape[1] // kv_heads, kv_heads)
    expected = inputs.kv_head_of
    return with_heads(inputs, found if keys else expected, found if values else expected)


def _solved_maps(sight: Sight) -> Iterator[Suspect]:
    """The map that explains each head by itself, where there is one; for this layout only."""
    inputs, expected = sight.inputs, sight.inputs.kv_head_of
    kv_heads, heads = inputs.key.shape[1], len(inputs.kv_head_of)
    if kv_heads < 2:
        return
    for keys, values, words in (
        (True, True, ""),
        (True, False, "keys: "),
        (False, True, "values: "),
    ):
        fits = np.zeros((heads, kv_heads), bool)
        for g in range(kv_heads):
            same = np.full(heads, g)
            imagined = with_heads(inputs, same if keys else expected, same if values else expected)
            world = World(inputs=imagined, exact=attention(imagined))
            near = np.abs(sight.actual - world.output()) <= world.allowed(sight.profile)
            fits[:, g] = near.all(axis=(0, 2, 3))
        if not fits.any(axis=1).all():
            continue
        found = np.where(fits[np.arange(heads), expected], expected, fits.argmax(axis=1))
        if (found == expected).all():
            continue
        head = int(np.argmax(found != expected))

        def imagine(
            other: AttentionInputs, found: Array = found, keys: bool = keys, values: bool = values
        ) -> AttentionInputs | None:
            if other.query.shape[1] != len(found) or other.key.shape[1] != kv_heads:
                return None
            return with_heads(other, found if keys else expected, found if values else expected)

        yield Suspect(
            kind="head-mapping",
            sentence=(
                f"{words}query head {head} reads kv head {found[head]}, expected {expected[head]}: "
                f"the map is {tuple(int(g) for g in found)}"
            ),
            imagine=imagine,
            cost=30,
        )


def permuted_outputs(sight: Sight) -> Iterator[Suspect]:
    """Heads that come back in another order, or as if they were positions."""
    heads = sight.inputs.query.shape[1]
    if heads < 2:
        return
    orders: dict[str, Rule] = {
        "in (group, kv head) order": lambda g, n: np.arange(g * n).reshape(n, g).T.ravel(),
        "as if stored in (group, kv head) order": lambda g, n: (
            np.arange(g * n).reshape(g, n).T.ravel()
        ),
        "reversed": lambda g, n: np.arange(g * n)[::-1],
        "shifted by one": lambda g, n: np.roll(np.arange(g * n), 1),
        "shifted back by one": lambda g, n: np.roll(np.arange(g * n), -1),
        "with neighbours swapped": lambda g, n: _neighbours(g * n),
    }
    for name, order in orders.items():
        yield Suspect(
            kind="head-mapping",
            sentence=f"the output heads come back {name}",
            imagine=partial(_ordered, order=order),
            cost=14,
        )
        yield Suspect(
            kind="head-mapping",
            sentence=f"the query heads are taken {name}",
            imagine=partial(_queries_ordered, order=order),
            cost=15,
        )
        yield Suspect(
            kind="head-mixing",
            sentence=f"the probabilities of one head meet the values of another: heads {name}",
            imagine=partial(_crossed, order=order),
            cost=18,
        )


def _neighbours(heads: int) -> Array:
    swapped: Array = np.arange(heads) ^ 1
    return np.where(swapped < heads, swapped, np.arange(heads))


def _sizes(inputs: AttentionInputs) -> tuple[int, int]:
    kv_heads = inputs.key.shape[1]
    return inputs.query.shape[1] // kv_heads, kv_heads


def _ordered(inputs: AttentionInputs, *, order: Rule) -> World:
    index = order(*_sizes(inputs))
    return rearranged(inputs, lambda output: output[:, index])


def _queries_ordered(inputs: AttentionInputs, *, order: Rule) -> AttentionInputs:
    return inputs.but(query=inputs.query[:, order(*_sizes(inputs))])


def _crossed(inputs: AttentionInputs, *, order: Rule) -> World:
    index = order(*_sizes(inputs))
    return from_weights(inputs, attention(inputs).probabilities[:, index])


def mixed_heads(sight: Sight) -> Iterator[Suspect]:
    """Softmax over the wrong axis, and heads that are averaged or added."""
    inputs = sight.inputs
    # Asked of a single head, query or row as well: larger variants tell these apart.
    for axis, kind, what, cost in (
        (1, "head-mixing", "heads", 6),
        (2, "wrong-operand", "queries", 7),
        (0, "batch-dependence", "batch rows", 9),
    ):
        yield Suspect(
            kind=kind,
            sentence=f"the softmax runs over the {what}, not over the keys",
            imagine=partial(_softmax_over, axis=axis),
            cost=cost,
        )
    if inputs.query.shape[1] == 1:
        return
    for name, mix in (
        ("averaged over all heads", _mean_of_all),
        ("added over all heads", lambda w: np.broadcast_to(w.sum(1, keepdims=True), w.shape)),
    ):
        yield Suspect(
            kind="head-mixing",
            sentence=f"the probabilities are {name}",
            imagine=partial(_mixed, mix=mix),
            cost=14,
        )
        yield Suspect(
            kind="head-mixing",
            sentence=f"the outputs are {name}",
            imagine=partial(rearranged, rearrange=mix),
            cost=14,
        )
    yield Suspect(
        kind="head-mixing",
        sentence="the probabilities are averaged over the query heads of a group",
        imagine=_group_mean,
        cost=15,
    )


def _softmax_over(inputs: AttentionInputs, *, axis: int) -> World:
    scores = attention(inputs).scores
    top = scores.max(axis=axis, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
    total = weights.sum(axis=axis, keepdims=True)
    return from_weights(inputs, weights / np.where(total > 0, total, 1.0))


def _mean_of_all(weights: Array) -> Array:
    return np.broadcast_to(weights.mean(1, keepdims=True), weights.shape)


def _mixed(inputs: AttentionInputs, *, mix: Callable[[Array], Array]) -> World:
    return from_weights(inputs, np.asarray(mix(attention(inputs).probabilities)))


def _group_mean(inputs: AttentionInputs) -> World:
    weights = attention(inputs).probabilities
    group, kv_heads = _sizes(inputs)
    split = weights.reshape(weights.shape[0], kv_heads, group, *weights.shape[2:])
    mean = np.broadcast_to(split.mean(2, keepdims=True), split.shape)
    return from_weights(inputs, mean.reshape(weights.shape))


def batch_rows(sight: Sight) -> Iterator[Suspect]:
    """Rows of the batch that read another row."""
    size = sight.inputs.query.shape[0]
    if size < 2:
        return
    moves: dict[str, Callable[[int], Array]] = {
        "batch row 0": lambda n: np.zeros(n, int),
        "the batch row before it": lambda n: np.maximum(np.arange(n) - 1, 0),
        "the next batch row": lambda n: (np.arange(n) + 1) % n,
        "the batch rows in reverse": lambda n: np.arange(n)[::-1],
    }
    for wrap in range(2, size):
        moves[f"batch row b % {wrap}"] = partial(_wrapped_rows, wrap=wrap)
    for name, move in moves.items():
        for cost, operands in enumerate(
            (("key", "value"), ("query", "key", "value"), ("value",), ("key",))
        ):
            which = " and ".join(operands) if len(operands) < 3 else "everything"
            yield Suspect(
                kind="batch-dependence",
                sentence=f"each batch row reads {name} ({which})",
                imagine=partial(_moved, move=move, operands=operands),
                cost=16 + cost,
            )


def _wrapped_rows(size: int, *, wrap: int) -> Array:
    return np.arange(size) % wrap


def _moved(
    inputs: AttentionInputs, *, move: Callable[[int], Array], operands: tuple[str, ...]
) -> AttentionInputs:
    index = move(inputs.query.shape[0])
    pinned = with_visible(inputs, inputs.visible)
    return pinned.but(**{name: getattr(inputs, name)[index] for name in operands})
