"""Kernels of numpy's arrays, whose workers are forked off a server that imports no torch."""

import ctypes
import os
import subprocess
import sys


def well_behaved(query, key, value):
    return query.copy()


def names_torch(query, key, value):
    raise NotImplementedError(f"torch is imported: {'torch' in sys.modules}")


def sleeps_holding_the_lock(query, key, value):
    ctypes.PyDLL(None).sleep(1000)


def prints(query, key, value):
    print("to standard output")
    os.write(1, b"to descriptor 1\n")
    subprocess.run(["echo", "from a child"], check=True)
    sys.stderr.write("to standard error\n")
    return query.copy()


def aborts(query, key, value):
    print("about to abort")
    os.abort()
