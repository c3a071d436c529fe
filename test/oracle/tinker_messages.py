"""Messages of the Tinker protocol, encoded and decoded by the protocol's own SDK: writes tinker-messages.json beside this file.

    pip install tinker==0.38.0 && python test/oracle/tinker_messages.py
"""

import importlib.metadata
import json
import pathlib

import numpy as np
from tinker.proto import tinker_public_pb2 as pb


def tensor(values, dtype):
    message = pb.Tensor(dtype=dtype, shape=[len(values)])
    message.dense = np.array(values, np.float32 if dtype == pb.DTYPE_FLOAT32 else np.int64).tobytes()
    return message


rows = [
    {"tokens": [72, 69, 76, 300000], "targets": [69, 76, 300000, 5], "advantages": [0, 0.5, -1.25, 3], "logprobs": [0, -0.1, -2.5, -7]},
    {"tokens": [1], "targets": [2], "advantages": [-0.75], "logprobs": [-0.3333]},
]
request = pb.ForwardBackwardRequest(model_id="model_1", seq_id=300, loss_fn="cispo")
request.loss_fn_config["clip_low_threshold"] = 0.8
request.loss_fn_config["clip_high_threshold"] = 1.3
for row in rows:
    datum = request.data.add()
    datum.model_input.add().encoded_text.tokens = np.array(row["tokens"], np.int32).tobytes()
    datum.loss_fn_inputs["target_tokens"].CopyFrom(tensor(row["targets"], pb.DTYPE_INT64))
    datum.loss_fn_inputs["logprobs"].CopyFrom(tensor(row["logprobs"], pb.DTYPE_FLOAT32))
    datum.loss_fn_inputs["advantages"].CopyFrom(tensor(row["advantages"], pb.DTYPE_FLOAT32))

logprobs = [[-0.5, -1.5, -2.25], [-3.0]]


def output(dtype):
    message = pb.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    message.metrics["loss:sum"] = 1.5
    record = message.loss_fn_outputs.add(type_tag="x", num_datums=2)
    for name, factor in (("elementwise_loss", -1), ("logprobs", 1)):
        flat = np.concatenate([np.array(row, np.float32) * factor for row in logprobs])
        size = 4 if dtype == pb.DTYPE_FLOAT32 else 2
        field = record.fields[name]
        field.data = flat.tobytes() if size == 4 else (flat.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        field.offsets = (np.cumsum([0] + [len(row) for row in logprobs]) * size).astype(np.int64).tobytes()
        field.dtype = dtype
    return message.SerializeToString().hex()


sample = pb.SampleResponse(prompt_cache_hit_tokens=3)
for reason, tokens in ((pb.STOP_REASON_STOP, [5, 70000]), (pb.STOP_REASON_LENGTH, [9])):
    sequence = sample.sequences.add(stop_reason=reason)
    sequence.tokens = np.array(tokens, np.int32).tobytes()
    sequence.logprobs = np.array([-0.25 * (i + 1) for i in range(len(tokens))], np.float32).tobytes()
sample.prompt_logprobs = np.array([np.nan, -1], np.float32).tobytes()

result = {
    "versions": {name: importlib.metadata.version(name) for name in ("tinker", "protobuf", "numpy")},
    "rows": rows,
    "request": request.SerializeToString(deterministic=True).hex(),
    "logprobs": logprobs,
    "output": {"float32": output(pb.DTYPE_FLOAT32), "bfloat16": output(pb.DTYPE_BFLOAT16)},
    "sample": sample.SerializeToString().hex(),
}
pathlib.Path(__file__).with_name("tinker-messages.json").write_text(json.dumps(result, indent=2) + "\n")
