"""An account as plain data, for JSON."""

from __future__ import annotations

from typing import Any

from equivalence.audit.account import Account
from equivalence.audit.advice import advice_of
from equivalence.audit.difference import Difference
from equivalence.audit.flows import LABEL
from equivalence.audit.replication import Replication


def facts_of(account: Account) -> dict[str, Any]:
    """Everything that was counted, with the label that belongs to every figure in bytes."""
    layers = max(1, len(account.sites))
    tokens = next((shape.q_len for shape in account.shapes if shape is not None), 1)
    flow = account.flow
    return {
        "name": account.name,
        "label": LABEL,
        "conditions": account.conditions,
        "operations": {
            "total": account.total_ops,
            "with_constants": account.with_constants,
            "histogram": dict(account.histogram),
            "casts": dict(account.casts),
            "rearranging": {
                kind: {"count": count, "bytes": size}
                for kind, (count, size) in account.rearranged.items()
            },
        },
        "attention": {
            "sites": len(account.sites),
            "fused": account.fused,
            "undecided": account.undecided,
        },
        "repeated_heads": {
            "count": len(account.of_heads),
            "bytes_written": account.head_bytes,
            "bytes_read": account.head_bytes_read,
        },
        "replications": [_replication(one) for one in account.replications],
        "bytes": {
            "written": flow.written,
            "read": flow.read,
            "stored_operands_read": flow.stored,
            "written_per_token": flow.written / tokens,
            "read_per_token": flow.read / tokens,
            "constants": account.constant_bytes,
            "values_of_unknown_size": account.unsized,
        },
        "macs": {"total": account.macs, "attention": account.attention_macs},
        "states": {
            "writes": account.state_writes,
            "writes_per_layer": account.state_writes / layers,
            "bytes": sum(state.bytes for state in account.states),
            "bytes_updated": sum(state.updated for state in account.states),
            "each": [
                {"name": s.name, "bytes": s.bytes, "writes": s.writes, "bytes_updated": s.updated}
                for s in account.states
            ],
        },
        "advice": advice_of(account),
    }


def _replication(one: Replication) -> dict[str, Any]:
    return {
        "op": one.op.type,
        "name": one.op.name,
        "from": [list(v.shape) for v in one.op.operands if not v.is_constant],
        "to": list(one.op.output.shape),
        "dtype": one.op.output.dtype,
        "factor": one.factor,
        "repeats": one.roles,
        "attentions": one.sites,
        "heads": list(one.matched) if one.matched else None,
        "head_order": one.order or None,
        "feeds_scores": one.of_heads and "key" in one.roles,
        "bytes_written": one.written,
        "bytes_read": one.read,
    }


def difference_facts(found: Difference) -> dict[str, Any]:
    """A difference as plain data."""
    return {
        "before": found.before,
        "after": found.after,
        "conditions": {name: list(pair) for name, pair in found.conditions.items()},
        "known_of_one_only": list(found.unknown),
        "owed_to": found.owed_to,
        "text": found.text,
        "quantities": {
            name: {"before": b, "after": a, "change": a - b}
            for name, (b, a) in found.quantities.items()
        },
    }
