"""Writes the expected values of `test/gguf/element-types.test.ts`: random blocks of each type of ggml as float32.

    python test/oracle/gguf-types.py

Needs numpy and gguf; the test does not. Writes `gguf-types.json.gz`: for each type its number in ggml, blocks in base64, and the elements
that `gguf.quants.dequantize` returns, as float32 in base64.
"""

import base64
import gzip
import importlib.metadata
import json
import pathlib

import gguf
import numpy as np
from gguf.quants import dequantize

random = np.random.default_rng(11)
# Positions of the float16 scales of each block, in bytes.
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
# Scales at the ends of the range, negative, zero and subnormal.
SPECIAL = np.array([1.0, -1.0, 0.0, -0.0, 65504.0, -65504.0, 2.0**-14, 2.0**-24, -(2.0**-24), 3 * 2.0**-20], np.float16)
BLOCKS = 16


def encoded(values):
    return base64.b64encode(values.tobytes()).decode()


types = {}
for name, positions in SCALES.items():
    type_ = gguf.GGMLQuantizationType[name]
    _, size = gguf.GGML_QUANT_SIZES[type_]
    blocks = random.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    for position in positions:
        scales = (random.standard_normal(BLOCKS) * 0.01).astype(np.float16)
        scales[: len(SPECIAL)] = random.permutation(SPECIAL)
        blocks[:, position : position + 2] = scales.view(np.uint8).reshape(BLOCKS, 2)
    types[name] = {"number": int(type_), "blocks": encoded(blocks), "values": encoded(dequantize(blocks, type_).astype(np.float32))}

plain = np.concatenate([SPECIAL.astype(np.float32), random.standard_normal(54).astype(np.float32), [3e38, 2.0**-126, 2.0**-149, 1e-40]]).astype(np.float32)
for name, blocks in {
    "F32": plain.view(np.uint8),
    "F16": np.clip(plain, -65504, 65504).astype(np.float16).view(np.uint8),
    "BF16": (plain.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8),
}.items():
    type_ = gguf.GGMLQuantizationType[name]
    values = blocks.view(np.float32) if name == "F32" else dequantize(blocks, type_)
    types[name] = {"number": int(type_), "blocks": encoded(blocks), "values": encoded(values.astype(np.float32))}

content = {"versions": {"numpy": np.__version__, "gguf": importlib.metadata.version("gguf")}, "types": types}
path = pathlib.Path(__file__).with_name("gguf-types.json.gz")
path.write_bytes(gzip.compress(json.dumps(content).encode(), 9, mtime=0))
