"""Writes the expected values of `test/engine/onnx/model/stored-weights.test.ts`: rows that the Python package gguf rounds to Q4_0 and Q8_0.

    python test/oracle/gguf-rounding.py

Needs numpy and gguf; the test does not. Writes `gguf-rounding.json.gz`: values as float32 in base64, and for each type the values that
`gguf.quants` has after rounding.
"""

import base64
import gzip
import importlib.metadata
import json
import pathlib

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

random = np.random.default_rng(5)
BLOCKS = 64
values = (random.standard_normal((BLOCKS, 32)) * np.exp(random.uniform(-8, 3, (BLOCKS, 1)))).astype(np.float32)
values[0] = 0
values[1, 1:] = 0
values[2] = np.abs(values[2])
values[3] = -np.abs(values[3])
# A scale that is subnormal as float16.
values[4] *= np.float32(1e-6)


def encoded(array):
    return base64.b64encode(array.astype(np.float32).tobytes()).decode()


types = {}
for name in ["Q4_0", "Q8_0"]:
    type_ = gguf.GGMLQuantizationType[name]
    types[name] = encoded(dequantize(quantize(values, type_), type_))

content = {"versions": {"numpy": np.__version__, "gguf": importlib.metadata.version("gguf")}, "values": encoded(values), "types": types}
path = pathlib.Path(__file__).with_name("gguf-rounding.json.gz")
path.write_bytes(gzip.compress(json.dumps(content).encode(), 9, mtime=0))
