"""Serves a GGUF file with llama.cpp's server, computing in float32: `python llama_server.py model.gguf [adapter.gguf]`.

Needs the package xllamacpp. Prints the address when the model is loaded, and ends when its standard input is closed.
"""

import sys

import xllamacpp as llama

params = llama.CommonParams()
params.model.path = sys.argv[1]
params.lora_adapters = [llama.CommonAdapterLoraInfo(path, 1.0) for path in sys.argv[2:]]
params.port = 0
params.n_ctx = 2048
params.n_parallel = 1
params.use_jinja = True
params.verbosity = -1
# The defaults, a float16 cache and flash attention, round otherwise.
params.cache_type_k = params.cache_type_v = llama.ggml_type.GGML_TYPE_F32
params.flash_attn_type = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2

server = llama.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
