"""Draw how error and bound grow with the context: `python examples/error_against_context.py`.

For each backend and context, some seeded cases: the largest error, the mean of the bound, and the
largest part of the bound that was used. Writes
error_against_context.svg into the folder that it is run in (needs the extra `report`).
"""

import argparse

from equivalence import AttentionCase
from equivalence.bounds import allowance
from equivalence.compare import compare
from equivalence.inputs import attention_inputs
from equivalence.profiles import profile_for
from equivalence.reference import attention
from equivalence.registry import entries
from equivalence.threads import pin_threads

BACKENDS = ("torch.repeat_kv", "torch.sdpa_gqa", "torch.sdpa_gqa_math")


def measured(name: str, context: int, seeds: int, dtype: str) -> tuple[float, float, float]:
    """Largest error, mean allowed error, and largest part used, of `seeds` decoding cases."""
    target = entries()[name].load()
    errors, allowed, used = [], [], []
    for seed in range(seeds):
        case = AttentionCase(
            num_kv_heads=2, group_size=2, kv_len=context, head_dim=64, values="normal",
            magnitude=3.0, dtype=dtype, seed=seed,
        )  # fmt: skip
        inputs = attention_inputs(case)
        exact = attention(inputs)
        bound = allowance(inputs, exact, profile_for(dtype, target.declaration.profile))
        output = target.call(inputs).output
        facts = compare(output, exact.output, bound, dtype=dtype)
        errors.append(abs(output - exact.output).max())
        allowed.append(bound.allowed.mean())
        used.append(facts.used)
    return max(errors), sum(allowed) / seeds, max(used)


def main() -> None:
    """Measure, print a table, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--longest", type=int, default=8192)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--dtype", default="bfloat16")
    options = parser.parse_args()
    pin_threads()
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    contexts = [2**power for power in range(1, options.longest.bit_length())]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name in BACKENDS:
        rows = [measured(name, n, options.seeds, options.dtype) for n in contexts]
        for n, (error, allowed, used) in zip(contexts, rows, strict=True):
            print(
                f"{name:20} {n:6} keys  error {error:.1e}  allowed {allowed:.1e}  used {used:.2f}"
            )
        (line,) = left.loglog(contexts, [row[0] for row in rows], marker="o", label=name)
        left.loglog(contexts, [row[1] for row in rows], ls=":", color=line.get_color())
        right.semilogx(contexts, [row[2] for row in rows], marker="o", label=name)
    left.set(xlabel="keys", ylabel="largest error (dotted: mean bound)", title=options.dtype)
    right.set(xlabel="keys", ylabel="largest part of the bound used", ylim=(0, 1.05))
    right.axhline(1, color="black", lw=0.8)
    right.legend()
    figure.savefig("error_against_context.svg")
    print("error_against_context.svg")


if __name__ == "__main__":
    main()
