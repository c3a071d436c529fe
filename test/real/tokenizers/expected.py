"""Writes what Hugging Face's library makes of the hard texts, for `tokenizers.test.ts`.

    python test/real/tokenizers/expected.py <output directory> <directory of a tokenizer>…

Needs transformers and tokenizers. For each directory it writes `<name>.json`: the texts, their ids without and with special tokens, and
the decoded texts without and with skipping of special tokens. The pipeline is `AutoTokenizer`'s, which for some classes replaces
the file's own; decoding never removes spaces in front of punctuation (`clean_up_tokenization_spaces`).
"""

import json
import pathlib
import random
import sys

from transformers import AutoTokenizer

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from corpus import texts  # noqa: E402


def name_of(directory):
    parts = [part for part in pathlib.Path(directory).resolve().parts if part not in ("models", "/")]
    return parts[-1].removeprefix("tokenizer-")


out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
for directory in sys.argv[2:]:
    backend = AutoTokenizer.from_pretrained(directory).backend_tokenizer
    file = json.loads((pathlib.Path(directory) / "tokenizer.json").read_text())
    corpus = texts([token["content"] for token in file["added_tokens"]])
    plain = backend.encode_batch(corpus, add_special_tokens=False)
    special = backend.encode_batch(corpus, add_special_tokens=True)
    ids = [e.ids for e in plain]
    rng = random.Random(7)
    size = backend.get_vocab_size()
    known = [i for i in range(size) if backend.id_to_token(i) is not None]
    single = [[i] for i in known]
    expected = {
        "directory": str(pathlib.Path(directory).resolve()),
        "texts": corpus,
        "ids": ids,
        "withSpecial": [e.ids for e in special],
        "decoded": backend.decode_batch(ids, skip_special_tokens=False),
        "skipped": backend.decode_batch(ids, skip_special_tokens=True),
        "tokens": {"ids": known, "decoded": backend.decode_batch(single, skip_special_tokens=False)},
    }
    (out / f"{name_of(directory)}.json").write_text(json.dumps(expected))
    print(name_of(directory), len(corpus), "texts", sum(map(len, ids)), "tokens", flush=True)
