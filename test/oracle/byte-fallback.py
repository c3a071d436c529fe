"""Writes the expected values of `byte-fallback.test.ts`: small tokenizers in the style of Llama 2, as transformers reads them.

    python test/oracle/byte-fallback.py

Needs transformers; the test does not. Writes `byte-fallback/tokenizer.json` and `byte-fallback.json.gz`: for each variant the changes to that
file and the tokenizer's configuration, texts with their ids, ids with their text, conversations with ids and mask.
"""

import gzip
import json
import pathlib
import random
import shutil
import tempfile

import tokenizers
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SEED = 7
here = pathlib.Path(__file__).parent
directory = here / "byte-fallback"
CORPUS = ["hello world [INST] the quick brown fox jumps over the lazy dog [/INST] and more text  with   spaces\tit's 123, 4.5! Größe", "  def f(x):", "été naïve"] * 3
TEMPLATE = """{% for m in messages %}{% if m.role == 'user' %}{{ bos_token + '[INST] ' + m.content.strip() + ' [/INST]' }}{% else %}{{ ' ' + m.content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""
PIECES = ["hello", " ", "  ", "▁", "world", "\n", "\t", "é", "👍🏽", "漢字", "Größe", "<s>", "</s>", "<unk>", "<pad>", "[INST]", "<0x41>", "\u00a0", "x", "123", "'s", "ا", "\u0301", ".", "the quick", "\x00", "\ufeff", "𐍈"]
TEXTS = ["", " ", "  ", "a", " a", "a ", "▁", " ▁a", "hello", " hello", "  hello", "hello world", "<s>hello", "<s> hello", "hello</s>", "hello</s>world", "hello </s> world", "<s></s>", "\n", "\nhello\n", "👍", "hello 👍🏽 world", "漢字かな", "<0x0A>", "été\u0301", "<pad>x<pad>", "x" * 300, "日" * 50]

tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
# As in SentencePiece, no token has a space inside.
tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
control = ["<unk>", "<s>", "</s>"]
tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=480, min_frequency=1, show_progress=False, special_tokens=control + [f"<0x{b:02X}>" for b in range(256)]))
tokenizer.pre_tokenizer = None
content = json.loads(tokenizer.to_str())
content["added_tokens"] = [{**token, "normalized": False} for token in content["added_tokens"] if token["id"] < 3]
content["added_tokens"].append({**content["added_tokens"][0], "id": len(content["model"]["vocab"]), "content": "<pad>", "special": False})
tokenizer = Tokenizer.from_str(json.dumps(content))
tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
base = json.loads(tokenizer.to_str())
shutil.rmtree(directory, ignore_errors=True)
directory.mkdir()
(directory / "tokenizer.json").write_text(json.dumps(base, ensure_ascii=False, separators=(",", ":")))

metaspace = lambda scheme: {"normalizer": None, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}}
normalized = {"added_tokens": [{**token, "normalized": not token["special"]} for token in base["added_tokens"]]}
VARIANTS = {
    "the file's normalizers": ({}, {"tokenizer_class": "PreTrainedTokenizerFast"}),
    "without Prepend": ({"normalizer": base["normalizer"]["normalizers"][1]}, {"tokenizer_class": "PreTrainedTokenizerFast"}),
    "Metaspace first": (metaspace("first"), {"tokenizer_class": "PreTrainedTokenizerFast"}),
    "Metaspace always": (metaspace("always"), {"tokenizer_class": "PreTrainedTokenizerFast"}),
    "Metaspace never": (metaspace("never"), {"tokenizer_class": "PreTrainedTokenizerFast"}),
    "LlamaTokenizer": ({}, {"tokenizer_class": "LlamaTokenizer"}),
    "LlamaTokenizer, legacy": ({}, {"tokenizer_class": "LlamaTokenizer", "legacy": True}),
    "LlamaTokenizerFast, not legacy": ({}, {"tokenizer_class": "LlamaTokenizerFast", "legacy": False}),
    "LlamaTokenizer without prefix": ({}, {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False}),
    "normalized added token": ({**metaspace("first"), **normalized}, {"tokenizer_class": "PreTrainedTokenizerFast"}),
}
CHATS = [
    [{"role": "user", "content": " hi 👍 "}, {"role": "assistant", "content": "hello\n  world 漢"}],
    [{"role": "user", "content": "q"}, {"role": "assistant", "content": "the quick"}, {"role": "user", "content": "more"}, {"role": "assistant", "content": "é!"}],
]
rng = random.Random(SEED)
texts = TEXTS + ["".join(rng.choice(PIECES) for _ in range(rng.randint(1, 12))) for _ in range(250)]
variants = []
for name, (changes, config) in VARIANTS.items():
    config = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": TEMPLATE, **config}
    with tempfile.TemporaryDirectory() as temporary:
        path = pathlib.Path(temporary)
        (path / "tokenizer.json").write_text(json.dumps({**base, **changes}))
        (path / "tokenizer_config.json").write_text(json.dumps(config))
        (path / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
        fast = transformers.AutoTokenizer.from_pretrained(path)
        decoded = []
        start = fast.encode("x", add_special_tokens=False)
        before = fast.decode(start)
        while len(decoded) < 120:
            ids = fast.encode(rng.choice(texts), add_special_tokens=False) if rng.random() < 0.5 else [rng.randrange(len(fast)) for _ in range(rng.randint(1, 8))]
            whole = fast.decode(start + ids)
            # Bytes that are no UTF-8 become one U+FFFD each in Python, one for each beginning of a character here.
            if "\ufffd" not in whole and whole.startswith(before):
                decoded.append({"ids": ids, "text": whole[len(before):]})
        chats = []
        for messages in CHATS:
            whole = fast.apply_chat_template(messages, tokenize=False).rstrip(" ")
            ids = fast.encode(whole, add_special_tokens=False)
            mask = [0] * len(ids)
            for index, message in enumerate(messages):
                if message["role"] == "assistant":
                    begin = len(fast.encode(fast.apply_chat_template(messages[:index], tokenize=False), add_special_tokens=False))
                    end = len(fast.encode(fast.apply_chat_template(messages[:index + 1], tokenize=False), add_special_tokens=False))
                    mask[begin:end] = [1] * (end - begin)
            chats.append({"messages": messages, "ids": ids, "mask": mask})
        variants.append({
            "name": name, "changes": changes, "config": config, "chats": chats, "decoded": decoded,
            "texts": [{"text": t, "ids": fast.encode(t, add_special_tokens=False), "with_special": fast.encode(t)} for t in texts],
        })
expected = {"seed": SEED, "versions": {"tokenizers": tokenizers.__version__, "transformers": transformers.__version__}, "variants": variants}
(here / "byte-fallback.json.gz").write_bytes(gzip.compress(json.dumps(expected).encode(), mtime=0))
