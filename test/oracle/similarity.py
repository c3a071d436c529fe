"""Writes the expected values of `test/environment/similarity.test.ts`: ratios of Python's own difflib.

    python test/oracle/similarity.py

Needs only the standard library; the test does not need Python. Writes `test/environment/similarity.json.gz`.
"""

import difflib
import gzip
import json
import pathlib
import random
import sys

random.seed(20261121)
rows = []


def add(a, b):
    rows.append([a, b, difflib.SequenceMatcher(None, a, b).ratio()])


def text(alphabet, length):
    return "".join(random.choice(alphabet) for _ in range(length))


def edited(original, alphabet, edits):
    result = list(original)
    for _ in range(edits):
        index, kind = random.randrange(len(result)), random.random()
        if kind < 0.4:
            result[index] = random.choice(alphabet)
        elif kind < 0.7:
            del result[index]
        else:
            result.insert(index, random.choice(alphabet))
    return "".join(result)


# Empty texts, code points outside the basic plane, combining marks.
for pair in [("", ""), ("", "abc"), ("abc", ""), ("abcd", "bcde"), ("😀a😀", "a😀"), ("e\u0301é", "ée\u0301")]:
    add(*pair)

# Short texts over small alphabets: many ties between blocks.
for _ in range(120):
    alphabet = "abcdé😀𝔘"[: random.randrange(2, 8)]
    add(text(alphabet, random.randrange(30)), text(alphabet, random.randrange(30)))

# Around the length at which autojunk begins, with few and with many different characters.
for length in (198, 199, 200, 201, 202, 299, 300, 301, 499, 500):
    for size in (2, 3, 8, 26, 120, 400):
        alphabet = [chr(point) for point in random.sample(range(0x100, 0x3000), size)]
        b = text(alphabet, length)
        add(edited(b, alphabet, random.choice([1, 5, 40])), b)

# A character that occurs as often as the bound n // 100 + 1, once less, once more.
for length in (200, 299, 300):
    for extra in (0, 1, 2):
        often = length // 100 + extra
        points = [chr(0x4E00 + index) for index in range(length - often)] + ["p"] * often
        random.shuffle(points)
        b = "".join(points)
        add("ppp", b)
        add("p" + b[:50] + "p" + b[60:120], b)

# Prose: spaces and vowels are popular.
words = "the quick brown fox jumps over a lazy dog while seven wizards brew strange potions near northern lakes".split()
for _ in range(40):
    left = [random.choice(words) for _ in range(random.randrange(1, 90))]
    right = list(left)
    for _ in range(random.randrange(1, 8)):
        right[random.randrange(len(right))] = random.choice(words)
    if random.random() < 0.3:
        random.shuffle(right)
    add(" ".join(left), " ".join(right))

path = pathlib.Path(__file__).parent.parent / "environment" / "similarity.json.gz"
source = f"Python {sys.version.split()[0]} difflib.SequenceMatcher(None, a, b).ratio()"
path.write_bytes(gzip.compress(json.dumps({"source": source, "rows": rows}).encode(), mtime=0))
print(f"{len(rows)} rows")
