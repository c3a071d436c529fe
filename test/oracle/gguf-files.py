"""Writes the expected values of `test/export/gguf-files.test.ts`: models and adapters of `families/` as llama.cpp's own converter writes them.

    LLAMA_CPP=<source directory of llama.cpp> python test/oracle/gguf-files.py

Needs torch, transformers and safetensors; the test does not. Writes `gguf-files.json.gz`: for each family and type the metadata, and
per tensor its shape (row-major), its ggml type and the SHA-256 digest of its bytes; for factors of rotary frequencies, which the converter
computes in float32, their values instead of the digest. The tokenizer is omitted: the models have none.
"""

import contextlib
import gzip
import hashlib
import importlib.metadata
import io
import json
import os
import pathlib
import runpy
import sys
import tempfile

llama_cpp = pathlib.Path(os.environ["LLAMA_CPP"])
sys.path[:0] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
import gguf  # noqa: E402
from conversion import ModelBase, get_model_class  # noqa: E402

here = pathlib.Path(__file__).parent
MODELS = ["llama3", "llama-biased", "qwen2", "qwen3", "smollm3"]
ADAPTERS = ["llama3", "qwen3", "smollm3"]
TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "q8_0": "q8_0"}
FILE_TYPES = {"float32": "ALL_F32", "float16": "MOSTLY_F16", "bfloat16": "MOSTLY_BF16", "q8_0": "MOSTLY_Q8_0"}


def described(path):
    reader = gguf.GGUFReader(path)
    skipped = ("GGUF.", "general.name", "general.size_label", "general.basename", "general.finetune", "general.base_model")
    metadata = {name: field.contents() for name, field in reader.fields.items() if not name.startswith(skipped)}
    return {"metadata": metadata, "tensors": {tensor.name: content(tensor) for tensor in reader.tensors}}


def content(tensor):
    described = {"shape": [int(n) for n in reversed(tensor.shape)], "type": int(tensor.tensor_type)}
    if tensor.name.startswith("rope_"):
        return {**described, "values": tensor.data.tolist()}
    return {**described, "sha256": hashlib.sha256(tensor.data.tobytes()).hexdigest()}


def model(name, dtype, path):
    directory = here / "families" / name / "model"
    hparams = ModelBase.load_hparams(directory, False)
    converter = get_model_class(hparams["architectures"][0])(directory, gguf.LlamaFileType[FILE_TYPES[dtype]], path)
    converter.set_vocab = lambda: converter.gguf_writer.add_tokenizer_model("none")
    converter.write()


def adapter(name, dtype, path):
    family = here / "families" / name
    sys.argv = ["convert_lora_to_gguf.py", "--base", str(family / "model"), "--outtype", TYPES[dtype], "--outfile", str(path), str(family / "adapter")]
    runpy.run_path(str(llama_cpp / "convert_lora_to_gguf.py"), run_name="__main__")


def converted(convert, names):
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stderr(io.StringIO()):
        files = {}
        for name in names:
            for dtype in TYPES:
                path = pathlib.Path(directory) / f"{name}-{dtype}.gguf"
                convert(name, dtype, path)
                files.setdefault(name, {})[dtype] = described(path)
        return files


written = {
    "versions": {"transformers": importlib.metadata.version("transformers"), "torch": importlib.metadata.version("torch")},
    "models": converted(model, MODELS),
    "adapters": converted(adapter, ADAPTERS),
}
(here / "gguf-files.json.gz").write_bytes(gzip.compress((json.dumps(written) + "\n").encode(), mtime=0))
