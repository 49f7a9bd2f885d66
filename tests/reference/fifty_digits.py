"""Attention by its definition at 50 digits: plain loops over numbers, nothing shared."""

import mpmath

mpmath.mp.dps = 50


def attention(inputs):
    """Output [B][H][Sq][Dv] and log-sum-exp [B][H][Sq] as nested lists."""
    batches, heads, queries, _ = inputs.query.shape
    outputs, sums = [], []
    for b in range(batches):
        outputs.append([])
        sums.append([])
        for h in range(heads):
            outputs[b].append([])
            sums[b].append([])
            for i in range(queries):
                output, total = row(inputs, b, h, i)
                outputs[b][h].append(output)
                sums[b][h].append(total)
    return outputs, sums


def row(inputs, b, h, i):
    """One query: its output, and the logarithm of the sum of its exponentials (None if empty)."""
    g = int(inputs.kv_head_of[h])
    width = inputs.value.shape[3]
    weights = []
    for j in range(inputs.key.shape[2]):
        if sees(inputs, b, h, i, j):
            weights.append((j, mpmath.exp(score(inputs, b, h, i, j, g))))
    keys_only = mpmath.fsum(w for _, w in weights)
    total = keys_only
    if inputs.sinks is not None:
        total += mpmath.exp(mpmath.mpf(float(inputs.sinks[h])))
    output = []
    for e in range(width):
        terms = (w * mpmath.mpf(float(inputs.value[b, g, j, e])) for j, w in weights)
        output.append(mpmath.fsum(terms) / total if weights else mpmath.mpf(0))
    return output, mpmath.log(keys_only) if weights else None


def score(inputs, b, h, i, j, g):
    query, key = inputs.query[b, h, i], inputs.key[b, g, j]
    dot = mpmath.fsum(
        mpmath.mpf(float(x)) * mpmath.mpf(float(y)) for x, y in zip(query, key, strict=True)
    )
    if inputs.scale is None:
        scaled = dot / mpmath.sqrt(len(query))
    else:
        scaled = dot * mpmath.mpf(inputs.scale)
    if inputs.softcap is not None:
        cap = mpmath.mpf(inputs.softcap)
        scaled = cap * mpmath.tanh(scaled / cap)
    if inputs.mask is not None and inputs.mask.dtype != bool:
        scaled += mpmath.mpf(mask_at(inputs, b, h, i, j))
    if inputs.alibi_slopes is not None:
        distance = abs(own_position(inputs, b, i) - j)
        scaled -= mpmath.mpf(float(inputs.alibi_slopes[h])) * distance
    return scaled


def mask_at(inputs, b, h, i, j):
    """The mask's entry, an axis of length one standing for every index."""
    mask = inputs.mask
    indices = (b, h, i, j)
    place = tuple(0 if mask.shape[axis] == 1 else indices[axis] for axis in range(4))
    return float(mask[place])


def length_of(inputs, b):
    return inputs.key.shape[2] if inputs.kv_lengths is None else int(inputs.kv_lengths[b])


def own_position(inputs, b, i):
    """The key that query i stands on: the last query stands on the last key in use."""
    return length_of(inputs, b) - inputs.query.shape[2] + i


def sees(inputs, b, h, i, j):
    if j >= length_of(inputs, b):
        return False
    here = own_position(inputs, b, i)
    if inputs.causal == "lower_right" and j > here:
        return False
    if inputs.causal == "upper_left" and j > i:
        return False
    if isinstance(inputs.window, int):
        if j > here or j <= here - inputs.window:
            return False
    elif inputs.window is not None:
        left, right = inputs.window
        if left >= 0 and j < here - left:
            return False
        if right >= 0 and j > here + right:
            return False
    if inputs.mask is not None:
        entry = mask_at(inputs, b, h, i, j)
        if inputs.mask.dtype == bool:
            return bool(entry)
        return entry != float("-inf")
    return True
