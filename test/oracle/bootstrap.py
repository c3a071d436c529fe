"""Writes the expected values of `test/experiment/bootstrap.test.ts`: percentile bootstrap intervals computed with NumPy.

    python test/oracle/bootstrap.py

Needs only numpy; the test does not need Python. Writes `test/experiment/bootstrap.json`. The draws follow the rule of `bootstrapMean`: index
j of replicate b is floor(w * n / 2^32), with w word j mod 4 of Philox4x32-10 for the counter (b, j div 4, 0, 0xb0075) and the seed modulo
2^64 as key. Means, standard deviation and quantiles are NumPy's.
"""

import json
import pathlib
import sys

import numpy

RULE = "index j of replicate b = floor(w * n / 2^32), w = Philox4x32-10(counter=(b, j div 4, 0, 0xb0075), key=seed mod 2^64)[j mod 4]"
DOMAIN = 0xB0075
LOW = numpy.uint64(0xFFFFFFFF)


def philox(counter, key):
    """Philox4x32-10 of counters of shape [..., 4] (Salmon et al., SC 2011)."""
    c = [counter[..., word].astype(numpy.uint64) for word in range(4)]
    k = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        left = c[0] * numpy.uint64(0xD2511F53)
        right = c[2] * numpy.uint64(0xCD9E8D57)
        c = [
            (right >> numpy.uint64(32)) ^ c[1] ^ numpy.uint64(k[0]),
            right & LOW,
            (left >> numpy.uint64(32)) ^ c[3] ^ numpy.uint64(k[1]),
            left & LOW,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return numpy.stack(c, axis=-1)


def indices(count, draws, seed):
    blocks = -(-count // 4)
    counter = numpy.zeros((draws, blocks, 4), dtype=numpy.uint64)
    counter[..., 0] = numpy.arange(draws)[:, None]
    counter[..., 1] = numpy.arange(blocks)
    counter[..., 3] = DOMAIN
    words = philox(counter, seed % 2**64).reshape(draws, blocks * 4)[:, :count]
    return (words * numpy.uint64(count)) >> numpy.uint64(32)


# The known answer of Random123 (kat_vectors) for counter and key zero.
assert [hex(word) for word in philox(numpy.zeros((1, 4)), 0)[0]] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]

generator = numpy.random.default_rng(20261122)
rows = []
for count, draws, seed, level in [(2, 100, 0, 0.95), (5, 1000, 7, 0.9), (16, 10_000, 0, 0.95), (64, 10_000, -3, 0.99),
                                  (257, 10_000, 2**40 + 1, 0.95), (30, 10_000, 1, 0.5)]:
    if count == 64:
        values = generator.integers(-2, 3, count) / 4  # differences of exact answers: many ties
    else:
        values = generator.normal(0.1, 0.4, count)
    replicates = values[indices(count, draws, seed)].mean(axis=1)
    low, high = numpy.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    rows.append({
        "values": values.tolist(), "draws": draws, "seed": seed, "level": level,
        "mean": values.mean(), "standard_error": replicates.std(ddof=1), "low": low, "high": high,
    })

path = pathlib.Path(__file__).parent.parent / "experiment" / "bootstrap.json"
path.write_text(json.dumps({"source": f"NumPy {numpy.__version__}, Python {sys.version.split()[0]}", "draws": RULE, "rows": rows}) + "\n")
print(f"{len(rows)} rows")
