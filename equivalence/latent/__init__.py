"""Latent attention (DeepSeek-V2, section 2.1): cases, inputs, reference, bound, trials, diagnosis.

The kind is called ``mla``, and so is the decorator that declares such a kernel; this package has
another name because ``equivalence.mla`` can only be one of the two.
"""
