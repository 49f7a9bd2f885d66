"""What a key/value cache holds, counted from a model's config; nothing heavy is imported.

kv_elements_per_token, mla_elements_per_token      one token of one layer, from its sizes
equivalent_gqa_groups                              a latent in key/value heads
kv_spec_from_config, named_spec                    a model's layers, from config.json or by name
sequences_that_fit                                 how many sequences a device has room for
compare_designs                                    MHA, GQA, MQA and MLA at one shape
"""

from __future__ import annotations

from equivalence.accounting.configs import kv_spec_from_config
from equivalence.accounting.designs import Design, compare_designs
from equivalence.accounting.devices import on_one_device, sequences_that_fit
from equivalence.accounting.formulas import (
    equivalent_gqa_groups,
    kv_elements_per_token,
    mla_elements_per_token,
)
from equivalence.accounting.models import model_names, named_spec
from equivalence.accounting.spec import CacheLayer, Kept, KVSpec
from equivalence.accounting.storage import STORAGES, Storage, storage_named

__all__ = [
    "STORAGES",
    "CacheLayer",
    "Design",
    "KVSpec",
    "Kept",
    "Storage",
    "compare_designs",
    "equivalent_gqa_groups",
    "kv_elements_per_token",
    "kv_spec_from_config",
    "mla_elements_per_token",
    "model_names",
    "named_spec",
    "on_one_device",
    "sequences_that_fit",
    "storage_named",
]
