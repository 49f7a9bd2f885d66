"""Imported by kernels.py while it loads."""


def copied(tensor):
    return tensor.clone()
