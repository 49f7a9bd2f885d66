"""With one thread, an inference that fails is answered all the same

runtime: openvino 2026.4.1
kind: wrong numbers
case: a reshape of [1, n], n open, to [1, 2] at n = 3; CPU, INFERENCE_NUM_THREADS 1 and 2
got: an error with two threads, an output with one
expected: an error with two threads, an error with one
takes: seconds

The reshape's shape inference fails at the call. With two threads that is a RuntimeError; with one
it is lost, and whatever lies in memory is the output, in a graph with enable_gqa an empty tensor.
"""

import numpy as np
import openvino as ov
from openvino import opset13 as op

given = op.parameter([1, -1], np.float32)
pairs = op.reshape(given, op.constant(np.array([1, 2])), special_zero=False)
product = op.matmul(pairs, op.constant(np.ones((2, 2), np.float32)), False, False)
model = ov.Model([op.relu(product)], [given])


def told(threads):
    compiled = ov.Core().compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": threads})
    try:
        compiled([np.ones((1, 3), np.float32)])
    except RuntimeError:
        return "an error"
    return "an output"


print(f"got {told(2)} with two threads, {told(1)} with one")
