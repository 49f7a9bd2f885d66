"""Questions that a black box answers in a few calls."""

from __future__ import annotations

from equivalence.probes.asking import Asker, NotAnswered
from equivalence.probes.battery import battery
from equivalence.probes.card import IdentityCard
from equivalence.probes.wording import card_lines

__all__ = ["Asker", "IdentityCard", "NotAnswered", "battery", "card_lines"]
