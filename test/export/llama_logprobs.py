"""Computes log-probabilities and token ids with llama.cpp, in float32: `python llama_logprobs.py < request.json > answer.json`.

Needs the package llama-cpp-python. The request is `{"model": path, "rows": [[id, ...], ...], "texts": [text, ...]}`, optionally with
`"lora"`, the path of an adapter. The answer has `logprobs`, for each row the log-probability of each token after the first, and `tokens`,
for each text its ids without and with the tokens that the tokenizer adds; null for a model without tokenizer.
"""

import ctypes
import json
import sys

import llama_cpp as llama
import numpy as np

request = json.load(sys.stdin)
llama.llama_backend_init()
silent = llama.llama_log_callback(lambda level, text, data: None)
llama.llama_log_set(silent, ctypes.c_void_p(0))
model = llama.llama_model_load_from_file(request["model"].encode(), llama.llama_model_default_params())
if not model:
    sys.exit("llama.cpp cannot load the model")
adapter = llama.llama_adapter_lora_init(model, request["lora"].encode()) if "lora" in request else None
if "lora" in request and not adapter:
    sys.exit("llama.cpp cannot load the adapter")
vocab = llama.llama_model_get_vocab(model)
size = llama.llama_vocab_n_tokens(vocab)


def logprobs(row):
    params = llama.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = max(len(row), 32)
    params.n_threads = params.n_threads_batch = 1
    params.type_k = params.type_v = 0  # float32 instead of float16
    params.flash_attn_type = 0
    context = llama.llama_init_from_model(model, params)
    if adapter:
        adapters = (llama.llama_adapter_lora_p_ctypes * 1)(ctypes.cast(adapter, llama.llama_adapter_lora_p_ctypes))
        llama.llama_set_adapters_lora(context, adapters, 1, (ctypes.c_float * 1)(1.0))
    batch = llama.llama_batch_init(len(row), 0, 1)
    batch.n_tokens = len(row)
    for index, token in enumerate(row):
        batch.token[index] = token
        batch.pos[index] = index
        batch.n_seq_id[index] = 1
        batch.seq_id[index][0] = 0
        batch.logits[index] = 1
    if llama.llama_decode(context, batch) != 0:
        sys.exit("llama.cpp cannot decode the row")
    found = []
    for index, token in enumerate(row[1:]):
        logits = np.ctypeslib.as_array(llama.llama_get_logits_ith(context, index), shape=(request["vocabulary"],)).astype(np.float64)
        top = logits.max()
        found.append(float(logits[token] - top - np.log(np.exp(logits - top).sum())))
    llama.llama_batch_free(batch)
    llama.llama_free(context)
    return found


def tokens(text, special):
    data = text.encode()
    buffer = (llama.llama_token * (len(data) + 16))()
    count = llama.llama_tokenize(vocab, data, len(data), buffer, len(buffer), special, True)
    return list(buffer[:count])


json.dump({"logprobs": [logprobs(row) for row in request["rows"]], "tokens": [[tokens(text, False), tokens(text, True)] for text in request["texts"]]}, sys.stdout)
