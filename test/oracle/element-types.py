"""Writes the expected values of `element-encoders.test.ts`: float32 numbers as float16, bfloat16 and Q8_0.

    python test/oracle/element-types.py

Needs numpy, torch and gguf; the test does not. Writes `element-types.json`: the numbers as their float32 bits, and the encoded bytes in
hexadecimal. Numbers outside the range of float16 are only in `wide`.
"""

import importlib.metadata
import json
import pathlib

import gguf
import numpy as np
import torch
from gguf.quants import quantize

random = np.random.default_rng(3)
narrow = np.concatenate([
    np.array([0.0, -0.0, 1.0, -1.0, 65504.0, 65519.996, -65504.0, 2.0**-14, 2.0**-24, 2.0**-25, 2.0**-25 * 1.0001, 3 * 2.0**-25, 6.1e-5,
              1.00048828125, 1.001464843750, 1.0 + 2.0**-11 + 2.0**-20, 1e-30, -1e-8, 0.1, 1 / 3, 2.0**-149, 1023.75, 2049.0, 2051.0]),
    random.standard_normal(64), random.standard_normal(64) * 1e-5, random.standard_normal(64) * 1e3, random.standard_normal(40) * 1e-7,
]).astype(np.float32)
wide = np.concatenate([np.array([3.3e38, -3.3e38, 1e38, 2.0**-126, 2.0**-149, 1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8]), random.standard_normal(57) * 1e30]).astype(np.float32)
blocks = np.concatenate([random.standard_normal(128), np.zeros(32), random.standard_normal(32) * 1e-4, np.arange(-16, 16) * 8.0,
                         # Scale 1, so that every second quotient is halfway between two integers.
                         np.concatenate([[127.0], np.arange(-15, 16) / 2]),
                         # The scale, and in the second block also max / 127, is below the smallest float16.
                         np.full(32, 1e-6), np.full(32, 2.0**-149), -np.arange(32) * 1e5]).astype(np.float32)


def bits(values):
    return values.view(np.uint32).tolist()


def bfloat16(values):
    return torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy().tobytes().hex()


content = {
    "versions": {"numpy": np.__version__, "torch": torch.__version__, "gguf": importlib.metadata.version("gguf")},
    "narrow": bits(narrow), "float16": narrow.astype(np.float16).tobytes().hex(), "narrow_bfloat16": bfloat16(narrow),
    "wide": bits(wide), "bfloat16": bfloat16(wide),
    "blocks": bits(blocks), "q8_0": quantize(blocks, gguf.GGMLQuantizationType.Q8_0).tobytes().hex(),
}
(pathlib.Path(__file__).parent / "element-types.json").write_text(json.dumps(content) + "\n")
