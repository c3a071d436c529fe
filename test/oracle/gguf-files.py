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
import safetensors  # noqa: E402
import transformers  # noqa: E402
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


def convert(directory, dtype, path):
    hparams = ModelBase.load_hparams(directory, False)
    converter = get_model_class(hparams["architectures"][0])(directory, gguf.LlamaFileType[FILE_TYPES[dtype]], path)
    # Some converters delegate to another.
    writer = getattr(converter, "impl", converter)
    writer.set_vocab = lambda: writer.gguf_writer.add_tokenizer_model("none")
    converter.write()


def model(name, dtype, path):
    convert(here / "families" / name / "model", dtype, path)


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


shared = {"vocab_size": 48, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 4, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
yarn = {"rope_type": "yarn", "rope_theta": 50000.0, "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0}
long = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.5, 2.0], "long_factor": [1.0, 3.0, 9.0],
        "partial_rotary_factor": 0.75, "original_max_position_embeddings": 16}
# Models of which only names, shapes and metadata are compared.
CONFIGS = {
    "mistral": transformers.MistralConfig(**shared, sliding_window=None),
    "ministral3": transformers.Ministral3Config(
        **shared, head_dim=8, sliding_window=None,
        rope_parameters={**yarn, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}),
    "gemma3": transformers.Gemma3TextConfig(
        **shared, head_dim=16, query_pre_attn_scalar=16, sliding_window=8, final_logit_softcapping=30.0,
        layer_types=["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}),
    "olmo2": transformers.Olmo2Config(**shared),
    "olmo3": transformers.Olmo3Config(**shared, sliding_window=8),
    "granite": transformers.GraniteConfig(**shared, attention_multiplier=0.2, embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=8.0),
    "phi3": transformers.Phi3Config(**shared, sliding_window=None, rope_parameters=long),
}


def configured(name, config):
    """Returns the `config.json` of a random model, the names of its tensors, and the names, shapes and metadata that the converter writes."""
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stderr(io.StringIO()):
        directory = pathlib.Path(directory)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(directory)
        # Gemma's converter counts the tokens.
        (directory / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {str(i): i for i in range(48)}}, "added_tokens": []}))
        convert(directory, "float32", directory / "model.gguf")
        file = described(directory / "model.gguf")
        for tensor in file["tensors"].values():
            tensor.pop("sha256", None)
        names = sorted(safetensors.safe_open(directory / "model.safetensors", "np").keys())
        return {"config": json.loads((directory / "config.json").read_text()), "names": names, **file}


written = {
    "versions": {"transformers": importlib.metadata.version("transformers"), "torch": importlib.metadata.version("torch")},
    "models": converted(model, MODELS),
    "adapters": converted(adapter, ADAPTERS),
    "configs": {name: configured(name, config) for name, config in CONFIGS.items()},
}
(here / "gguf-files.json.gz").write_bytes(gzip.compress((json.dumps(written) + "\n").encode(), mtime=0))
