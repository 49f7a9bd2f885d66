"""Imported by kernels.py inside a call."""


def copied(tensor):
    return tensor.clone()
