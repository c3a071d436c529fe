"""Writes small random models of each family as GGUF, converted by llama.cpp, with the values of `test/gguf/families.test.ts`.

    python test/oracle/gguf-families.py <repository of llama.cpp>

Needs torch and transformers; the test does not. Writes `gguf-families.json.gz`: for each family the GGUF file in base64, the `config.json`
of transformers, and the shape and the SHA-256 of the float32 bytes of every tensor.
"""

import base64
import gzip
import hashlib
import json
import logging
import pathlib
import sys
import tempfile

llama_cpp = pathlib.Path(sys.argv[1])
sys.path[:0] = [str(llama_cpp / "gguf-py"), str(llama_cpp)]

import conversion.base as base
import gguf
import torch
import transformers
from conversion import get_model_class

logging.disable(logging.WARNING)
torch.set_num_threads(1)
shared = {"vocab_size": 32, "intermediate_size": 24, "num_hidden_layers": 4, "max_position_embeddings": 64, "initializer_range": 0.2,
          "bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
halves = {"rope_type": "longrope", "short_factor": [1.0, 1.25, 1.5], "long_factor": [1.5, 4.0, 8.0], "rope_theta": 10000.0,
          "partial_rotary_factor": 0.75, "original_max_position_embeddings": 16}
FAMILIES = {
    "llama3": transformers.LlamaConfig(**shared, rms_norm_eps=1e-5, rope_theta=500000.0, rope_scaling={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}),
    "ministral3": transformers.Ministral3Config(**shared, head_dim=16, rms_norm_eps=1e-5, rope_parameters={
        "rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0,
        "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}),
    "gemma3": transformers.Gemma3TextConfig(**shared, head_dim=16, sliding_window=8, query_pre_attn_scalar=16, sliding_window_pattern=6, rope_parameters={
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}}),
    "phi3": transformers.Phi3Config(**{**shared, "bos_token_id": 1}, rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
                                    original_max_position_embeddings=64, sliding_window=None),
    "phi4-mini": transformers.Phi3Config(**{**shared, "bos_token_id": 1}, rope_parameters=halves, original_max_position_embeddings=16, tie_word_embeddings=True),
    "olmo2": transformers.Olmo2Config(**shared, rms_norm_eps=1e-6, rope_theta=500000.0),
    "olmo3": transformers.Olmo3Config(**shared, rms_norm_eps=1e-6, sliding_window=8, rope_parameters={
        "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
        "full_attention": {"rope_type": "yarn", "factor": 8.0, "rope_theta": 500000.0, "original_max_position_embeddings": 16,
                           "attention_factor": 1.2, "beta_fast": 32.0, "beta_slow": 1.0}}),
    "granite": transformers.GraniteConfig(**shared, rms_norm_eps=1e-5, rope_theta=1e4, embedding_multiplier=12.0, logits_scaling=8.0,
                                          residual_multiplier=0.25, attention_multiplier=0.125, tie_word_embeddings=True),
    "smollm3": transformers.SmolLM3Config(**shared, rope_theta=2e6, tie_word_embeddings=True),
    "qwen3": transformers.Qwen3Config(**shared, head_dim=16, rope_theta=1e6, tie_word_embeddings=True),
}


def without_vocabulary(self):
    self.gguf_writer.add_tokenizer_model("none")


content = {"versions": {"torch": torch.__version__, "transformers": transformers.__version__}, "families": {}}
for seed, (name, config) in enumerate(FAMILIES.items()):
    torch.manual_seed(100 + seed)
    model = transformers.AutoModelForCausalLM.from_config(config).float()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            # Gains with few bits and without -0: the converter adds 1 to Gemma's gains without rounding.
            gains = parameter + 0.3 * torch.randn_like(parameter)
            parameter.copy_(gains.mul(256).round().div(256).add(0.0) if "norm" in key else parameter.bfloat16().float())
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model.save_pretrained(folder / "model")
        # The converter of Gemma counts the tokens.
        (folder / "model" / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {str(i): i for i in range(32)}}, "added_tokens": []}))
        hparams = base.ModelBase.load_hparams(folder / "model", False)
        model_class = get_model_class(base.get_model_architecture(hparams, base.ModelType.TEXT))
        model_class.set_vocab = without_vocabulary
        try:
            instance = model_class(folder / "model", gguf.LlamaFileType.ALL_F32, folder / "model.gguf")
            if hasattr(instance, "impl"):
                type(instance.impl).set_vocab = without_vocabulary
            instance.write()
        except Exception as error:
            print(name, "is not converted:", repr(error))
            continue
        tensors = {key: value for key, value in model.state_dict().items() if not (key == "lm_head.weight" and config.tie_word_embeddings)}
        content["families"][name] = {
            "gguf": base64.b64encode((folder / "model.gguf").read_bytes()).decode(),
            "config": json.loads((folder / "model" / "config.json").read_text()),
            "tensors": {key: {"shape": list(value.shape), "sha256": hashlib.sha256(value.numpy().tobytes()).hexdigest()} for key, value in tensors.items()},
        }
        print(name, (folder / "model.gguf").stat().st_size)
path = pathlib.Path(__file__).with_name("gguf-families.json.gz")
path.write_bytes(gzip.compress(json.dumps(content).encode(), 9, mtime=0))
