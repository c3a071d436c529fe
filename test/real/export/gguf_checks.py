"""Compares exported GGUF files of a real model: `python gguf_checks.py float32.gguf q8_0.gguf published.gguf`.

Needs the package gguf. Prints as JSON `quantized`, the number of Q8_0 tensors of the second file; `different`, the names of the tensors whose
bytes are not those that the package makes of the first file's; and `metadata`, the keys of the published file that the first has with
another value or lacks.
"""

import json
import sys

import gguf
import numpy as np

full, narrow, published = (gguf.GGUFReader(path) for path in sys.argv[1:])
values = {tensor.name: tensor for tensor in full.tensors}
quantized = 0
different = []
for tensor in narrow.tensors:
    expected = values[tensor.name].data
    if tensor.tensor_type == gguf.GGMLQuantizationType.Q8_0:
        quantized += 1
        expected = gguf.quants.quantize(expected, gguf.GGMLQuantizationType.Q8_0)
    if not np.array_equal(tensor.data.reshape(-1).view(np.uint8), expected.reshape(-1).view(np.uint8)):
        different.append(tensor.name)
found = {name: field.contents() for name, field in full.fields.items()}
metadata = [name for name, field in published.fields.items() if name not in found or found[name] != field.contents()]
json.dump({"quantized": quantized, "different": different, "metadata": metadata}, sys.stdout)
