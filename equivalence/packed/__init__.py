"""Kernels that take sequences of unequal lengths: packed end to end, or cut into pages."""
