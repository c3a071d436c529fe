"""Writes event-file.tfevents, the file of test/trackers/files.test.ts. Needs the package tensorboard 2.21."""

import pathlib

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.compat.proto.types_pb2 import DT_FLOAT, DT_STRING
import struct


def hparams(tag, data):
    value = Summary.Value(tag=f"_hparams_/{tag}")
    value.metadata.plugin_data.plugin_name = "hparams"
    value.metadata.plugin_data.content = data.SerializeToString(deterministic=True)
    value.tensor.dtype = DT_FLOAT
    value.tensor.tensor_shape.SetInParent()
    value.tensor.float_val.append(0)
    return value


start = HParamsPluginData()
info = start.session_start_info
info.hparams["env"].string_value = "sums"
info.hparams["exact"].bool_value = True
info.hparams["lr"].number_value = 0.25
info.group_name = "run"
info.start_time_secs = 1_700_000_001

text = Summary.Value(tag="config")
text.metadata.plugin_data.plugin_name = "text"
text.tensor.dtype = DT_STRING
text.tensor.tensor_shape.SetInParent()
text.tensor.string_val.append(b"# settings")

end = HParamsPluginData()
end.session_end_info.status = 1
end.session_end_info.end_time_secs = 1_700_000_003

events = [
    Event(wall_time=1_700_000_000.5, file_version="brain.Event:2"),
    Event(wall_time=1_700_000_001, step=0, summary=Summary(value=[hparams("session_start_info", start), text])),
    Event(wall_time=1_700_000_002, step=300, summary=Summary(value=[Summary.Value(tag="reward/mean", simple_value=0.5)])),
    Event(wall_time=1_700_000_003, step=301, summary=Summary(value=[hparams("session_end_info", end)])),
]

with open(pathlib.Path(__file__).with_name("event-file.tfevents"), "wb") as file:
    for event in events:
        data = event.SerializeToString(deterministic=True)
        length = struct.pack("<Q", len(data))
        file.write(length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data)))
