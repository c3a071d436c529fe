"""Writes the expected values of `test/graders/text-metrics.test.ts`: the metrics of rapidfuzz, nltk and rouge-score on random pairs.

    pip install rapidfuzz==3.10.1 nltk==3.9.1 rouge-score==0.1.2
    python test/oracle/text-metrics.py

The versions are the ones that OpenAI's graders guide lists. The test does not need Python. Writes `test/graders/text-metrics.json.gz`.
"""

import gzip
import importlib.metadata
import itertools
import json
import pathlib
import random
import sys
import warnings

from nltk.stem.porter import PorterStemmer
from nltk.translate.bleu_score import sentence_bleu
from nltk.translate.gleu_score import sentence_gleu
from nltk.translate.meteor_score import meteor_score
from rapidfuzz import fuzz, utils
from rouge_score import rouge_scorer

random.seed(20261127)
# nltk warns about texts without a common n-gram, whose value is the point of many pairs.
warnings.simplefilter("ignore")


class EmptyWordNet:
    """WordNet without an entry: METEOR without its stage of synonyms."""

    def synsets(self, word):
        return []


ROUGES = ["rouge1", "rouge2", "rouge3", "rouge4", "rouge5", "rougeL"]
scorer = rouge_scorer.RougeScorer(ROUGES)


def metrics(text, reference):
    tokens, right = text.split(), reference.split()
    rouge = scorer.score(reference, text)
    return [
        fuzz.WRatio(text, reference, processor=utils.default_process) / 100,
        sentence_bleu([right], tokens),
        sentence_gleu([right], tokens),
        meteor_score([right], tokens, wordnet=EmptyWordNet()),
        *(rouge[name].fmeasure for name in ROUGES),
    ]


WORDS = (
    "the The THE a of to and in is was not no cat cats mat sat sitting hopping hoped quick quickly brown fox foxes jumps jumped dies dying lying "
    "skies sky news happy happily relational rationally conditional agreed feed plastered conflated troubled sized falling hissing failing filing "
    "generalization oscillators operator analogously vietnamization predication defensible irritant replacement adjustment dependent adoption "
    "communism activate angularity homologous effective bowdlerize probate rate cease controlling rolling proceed 42 1,000 3.14 ok. end. "
    "don't it's well-known naïve café straße Ελλάδα ОДИН два три 東京 は مرحبا 🙂 👩‍🚀 x_y snake_case A-1 (so) \"quoted\" , . ; : -- …"
).split()
SPACES = [" "] * 12 + ["  ", "\n", "\t", "\u00a0", "\u2003", "\u3000", "\x1c"]


def sentence(length, vocabulary=WORDS):
    words = [random.choice(vocabulary) for _ in range(length)]
    return "".join(itertools.chain.from_iterable((word, random.choice(SPACES)) for word in words))[: None if random.random() < 0.3 else -1]


def edited(text):
    words = text.split()
    for _ in range(random.randrange(1, 2 + len(words) // 3)):
        index, kind = random.randrange(len(words) + 1), random.random()
        if kind < 0.3:
            words.insert(index, random.choice(WORDS))
        elif kind < 0.5 and words:
            del words[index % len(words)]
        elif kind < 0.7 and words:
            words[index % len(words)] = words[index % len(words)][::-1]
        elif kind < 0.85 and words:
            words[index % len(words)] = words[index % len(words)].upper()
        elif words:
            start = random.randrange(len(words))
            block = words[start : start + 4]
            del words[start : start + 4]
            position = random.randrange(len(words) + 1)
            words[position:position] = block
    return " ".join(words)


def characters(alphabet, length):
    return "".join(random.choice(alphabet) for _ in range(length))


pairs = [("", ""), ("", "a b"), ("a b", ""), (" ", "\n"), ("!?", "..."), ("a", "a"), ("A b C d", "a B c D"), ("ß", "SS"), ("İi", "i̇I"), ("ΑΣ", "ας")]
for _ in range(290):
    reference = sentence(random.randrange(1, 25))
    pairs.append((edited(reference), reference))
for _ in range(150):
    pairs.append((sentence(random.randrange(0, 20)), sentence(random.randrange(0, 20))))
# Few different words: repeated words, many ties between alignments.
for _ in range(150):
    few = random.sample(WORDS, random.randrange(1, 5))
    pairs.append((sentence(random.randrange(1, 30), few), sentence(random.randrange(1, 30), few)))
# Few different characters, with lengths on both sides of every limit of WRatio: the ratios 1.5 and 8, and 64 code points.
for _ in range(200):
    alphabet = random.choice(["ab", "ab ", "abc  ", "aé😀𝔘 ", "abcdefgh "])
    pairs.append((characters(alphabet, random.randrange(0, 150)), characters(alphabet, random.randrange(0, 40))))
for _ in range(80):
    short, length = characters("abcdefghijkl ", random.randrange(3, 30)), random.randrange(1, 300)
    before, after = characters("abcdefghijkl ", length), characters("abcdefghijkl ", random.randrange(1, 60))
    pair = (before + short + after, short)
    pairs.append(pair if random.random() < 0.5 else pair[::-1])
# Long texts.
for _ in range(40):
    reference = sentence(random.randrange(80, 200))
    pairs.append((edited(edited(reference)), reference))
# Code points of many scripts, assigned in Unicode 13 and before.
SCRIPTS = [chr(point) for start, end in [(0x20, 0x24F), (0x370, 0x52F), (0x5D0, 0x5EA), (0x620, 0x66F), (0x900, 0x97F), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2460, 0x24FF), (0x3040, 0x30FF), (0x4E00, 0x4E80), (0xFF01, 0xFFEF), (0x1D400, 0x1D454), (0x1F600, 0x1F64F)] for point in range(start, end)]
for _ in range(80):
    alphabet = random.sample(SCRIPTS, random.randrange(2, 40)) + [" "]
    reference = characters(alphabet, random.randrange(1, 80))
    text = "".join(random.choice(alphabet) if random.random() < 0.2 else each for each in reference)
    pairs.append((text, reference))

stemmer = PorterStemmer()
SUFFIXES = (
    "s es ies sses ed eed ied ing ying at bl iz ational tional enci anci izer abli bli alli entli eli ousli ization ation ator alism iveness fulness "
    "ousness aliti iviti biliti fulli logi icate ative alize iciti ical ful ness al ance ence er ic able ible ant ement ment ent sion tion ou ism ate iti "
    "ous ive ize e ll y ly"
).split()
SYLLABLES = "a e o y i b bl c d dr f g h k l m n p pl qu r s sh st t tr v w x z ab ent ul el ow ay oy".split()
words = {word.lower() for word in WORDS}
words |= set("sky skies dying lying tying die dies died news inning innings outing outings canning cannings howe proceed exceed succeed spied enjoy y".split())
while len(words) < 3000:
    stem = "".join(random.choice(SYLLABLES) for _ in range(random.randrange(1, 4)))
    words.add(stem + "".join(random.choice(SUFFIXES) for _ in range(random.randrange(0, 3))))

path = pathlib.Path(__file__).parent.parent / "graders" / "text-metrics.json.gz"
versions = {name: importlib.metadata.version(name) for name in ("rapidfuzz", "nltk", "rouge-score")}
data = {
    "versions": {"python": sys.version.split()[0], **versions},
    "metrics": ["fuzzy_match", "bleu", "gleu", "meteor", "rouge_1", "rouge_2", "rouge_3", "rouge_4", "rouge_5", "rouge_l"],
    "rows": [[text, reference, *metrics(text, reference)] for text, reference in pairs],
    "stems": [[word, stemmer.stem(word)] for word in sorted(words)],
}
path.parent.mkdir(exist_ok=True)
path.write_bytes(gzip.compress(json.dumps(data).encode(), mtime=0))
print(f"{len(data['rows'])} rows, {len(data['stems'])} stems, {path.stat().st_size} bytes")
