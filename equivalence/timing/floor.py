"""The floor: how fast this machine reads bytes, from memory and from its last-level cache.

The reader is ``torch.sum`` over float32: of the reductions that torch has (sum, largest, dot
product, matrix times vector), the fastest on every machine tried, and a call reads each byte once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from equivalence.timing.results import Bandwidth, Estimate, Floor

MIB: Final = 2**20
ASSUMED: Final = 32 * MIB
BEYOND: Final = 4  # times the last-level cache, for what must come from memory
LEAST: Final = 64 * MIB
MOST: Final = 1024 * MIB
WITHIN: Final = 8  # part of the last-level cache, for what must stay in it


def last_level_cache(device: str = "cpu") -> tuple[int, bool]:
    """Bytes of the last-level cache, and whether that is only assumed."""
    if device.partition(":")[0] == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(device).L2_cache_size), False
    sizes = [size for folder in _cache_folders() if (size := _size(folder)) is not None]
    if sizes:
        return max(sizes), False
    if sys.platform == "darwin":
        found = _sysctl("hw.perflevel0.l2cachesize") or _sysctl("hw.l3cachesize")
        if found:
            return found, False
    return ASSUMED, True


def readers(device: str) -> tuple[dict[str, Callable[[], Any]], tuple[int, int, int, bool]]:
    """The two calls that read a buffer, and what they read: see :class:`Bandwidth`."""
    import torch

    last_level, assumed = last_level_cache(device)
    beyond = min(MOST, max(LEAST, BEYOND * last_level))
    within = max(MIB // 4, last_level // WITHIN)
    large, small = (torch.ones(size // 4, device=device) for size in (beyond, within))
    # The answer stays in one place, so that nothing is allocated.
    total = torch.empty((), device=device)
    calls: dict[str, Callable[[], Any]] = {
        "memory": lambda: torch.sum(large, dim=0, out=total),
        "cache": lambda: torch.sum(small, dim=0, out=total),
    }
    return calls, (beyond, within, last_level, assumed)


def bandwidth_of(memory: Estimate, cache: Estimate, about: tuple[int, int, int, bool]) -> Bandwidth:
    """Bytes a second from what the two readers took; a cache is never slower than memory."""
    beyond, within, last_level, assumed = about
    from_memory = beyond / memory.minimum
    return Bandwidth(
        memory=from_memory,
        cache=max(from_memory, within / cache.minimum),
        memory_bytes=beyond,
        cache_bytes=within,
        last_level=last_level,
        assumed=assumed,
    )


def floor_of(size: int, bandwidth: Bandwidth) -> Floor:
    """The least time for ``size`` bytes; what fits half the last-level cache is read from there.

    Half of it, since the call has other data too, and may share the cache with other processes.
    """
    if 2 * size > bandwidth.last_level:
        return Floor(seconds=size / bandwidth.memory, where="memory")
    return Floor(seconds=size / bandwidth.cache, where="cache")


def _cache_folders() -> list[Path]:
    return sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"))


def _size(folder: Path) -> int | None:
    try:
        text = (folder / "size").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    unit = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 0)
    return int(text[:-1]) * unit if unit and text[:-1].isdigit() else None


def _sysctl(name: str) -> int:
    try:
        with os.popen(f"sysctl -n {name} 2>/dev/null") as answer:
            text = answer.read().strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0
