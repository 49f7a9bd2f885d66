"""How fast `equivalence kvspec` answers, and how many model families it counts exactly.

    python benchmarks/kv_accounting.py             time of one answer
    python benchmarks/kv_accounting.py --families  every causal model of transformers, by its
                                                   default config, against its real cache (1 min)

A family's model is built on torch's "meta" device, which computes shapes and holds no numbers, so
its cache has the real size of the real code at any size of model. Some families cannot run so.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings

ANSWER = "from equivalence.cli import run; run(['kvspec', 'llama-3.2-3b'])"
ROUNDS = 9
TOKENS = 40


def time_of_an_answer() -> None:
    """The best and the median of some fresh processes, in wall and CPU time."""
    walls, cpus = [], []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", ANSWER], check=True, stdout=subprocess.DEVNULL)
        walls.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    for name, times in (("wall", sorted(walls)), ("cpu", sorted(cpus))):
        print(f"{name}  best {times[0]:.3f} s  median {times[ROUNDS // 2]:.3f} s")


def count_families() -> None:
    """Compare, and print each family that differs or could not be compared."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.simplefilter("ignore")
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    from equivalence.accounting import kv_spec_from_config
    from equivalence.errors import InvalidRequest

    transformers.logging.set_verbosity_error()
    counted: dict[str, list[str]] = {"exact": [], "differs": [], "refused": [], "not run": []}
    for family in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        try:
            config = transformers.AutoConfig.for_model(family)
            spec = kv_spec_from_config(json.loads(config.to_json_string(use_diff=False)))
        except InvalidRequest as refusal:
            counted["refused"].append(f"{family} ({str(refusal).removeprefix('the config: ')})")
            continue
        except Exception as error:  # a default config that its own class refuses
            counted["not run"].append(f"{family} ({type(error).__name__})")
            continue
        try:
            held = bytes_on_meta(config)
        except Exception as error:  # a model that shapes alone cannot run
            counted["not run"].append(f"{family} ({type(error).__name__})")
            continue
        needed = spec.bytes(TOKENS, between=True)
        if held == needed:
            counted["exact"].append(family)
        else:
            counted["differs"].append(f"{family} (holds {held:,}, counted {needed:,})")
    for verdict, families in counted.items():
        print(f"{verdict}: {len(families)}\n  " + "\n  ".join(families))


def bytes_on_meta(config: object) -> int:
    """The bytes that the cache holds after TOKENS tokens, in bfloat16."""
    import torch
    import transformers

    with torch.device("meta"), torch.no_grad():
        model = transformers.AutoModelForCausalLM.from_config(
            config, attn_implementation="eager", dtype=torch.bfloat16
        ).eval()
        tokens = torch.zeros(1, TOKENS, dtype=torch.long)
        cache = model(input_ids=tokens, use_cache=True).cache
    tensors = (
        getattr(layer, name, None)
        for layer in cache.layers
        for name in ("keys", "values", "indexer_keys")
    )
    return sum(2 * tensor.numel() for tensor in tensors if tensor is not None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", action="store_true")
    if parser.parse_args().families:
        count_families()
    else:
        time_of_an_answer()
