"""Rotary position embeddings: cases, float64 angles, their error bound, and named mistakes.

The package is not called ``rotary``: ``equivalence.rotary`` is the decorator that declares one.
"""
