/** Encoder of the events in a TensorBoard file. The field numbers are from the `.proto` file of the message that a function names. */
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";

/** Value of a summary: a scalar, a Markdown text, or the start or end of a session of the plugin `hparams`. */
export type SummaryValue =
  | { readonly type: "scalar"; readonly tag: string; readonly value: number }
  | { readonly type: "text"; readonly tag: string; readonly text: string }
  | {
      readonly type: "hparams-start";
      readonly parameters: ReadonlyMap<string, string | number | boolean>;
      readonly group: string;
      readonly timeMs: number;
    }
  | { readonly type: "hparams-end"; readonly isFailed: boolean; readonly timeMs: number };

/** Content of an event: the version of the file, or the values of a step. */
export type EventContent = { readonly timeMs: number } & (
  | { readonly fileVersion: string }
  | { readonly step: number; readonly values: readonly SummaryValue[] }
);

/** `tensorflow.DataType` of a tensor of numbers. */
const DT_FLOAT = 1;
/** `tensorflow.DataType` of a tensor of texts. */
const DT_STRING = 7;
/** `tensorboard.hparams.Status` of a session that has completed. */
const STATUS_SUCCESS = 1;
/** `tensorboard.hparams.Status` of a session that has failed. */
const STATUS_FAILURE = 2;

/**
 * Encodes `tensorflow.Event`.
 *
 * @see https://github.com/tensorflow/tensorboard/blob/master/tensorboard/compat/proto/event.proto
 */
export function eventBytes(content: EventContent): Uint8Array {
  const writer = new BinaryWriter();
  writer.tag(1, WireType.Bit64).double(content.timeMs / 1000);
  if ("fileVersion" in content) return writer.tag(3, WireType.LengthDelimited).string(content.fileVersion).finish();
  // Proto3 omits default values.
  if (content.step !== 0) writer.tag(2, WireType.Varint).int64(content.step);
  message(writer, 5, (summary) => {
    for (const value of content.values) message(summary, 1, (entry) => writeValue(entry, value));
  });
  return writer.finish();
}

/** Writes `tensorflow.Summary.Value`. */
function writeValue(writer: BinaryWriter, value: SummaryValue): void {
  switch (value.type) {
    case "scalar":
      string(writer, 1, value.tag);
      writer.tag(2, WireType.Bit32).float(value.value);
      return;
    case "text":
      string(writer, 1, value.tag);
      message(writer, 8, (tensor) => {
        tensor.tag(1, WireType.Varint).int32(DT_STRING);
        // A shape without dimensions is a scalar.
        message(tensor, 2, () => undefined);
        string(tensor, 8, value.text);
      });
      writePlugin(writer, "text", new Uint8Array());
      return;
    case "hparams-start":
      writeSession(writer, "start", (data) =>
        message(data, 3, (info) => {
          for (const [name, parameter] of value.parameters) message(info, 1, (entry) => writeParameter(entry, name, parameter));
          string(info, 4, value.group);
          info.tag(5, WireType.Bit64).double(value.timeMs / 1000);
        }),
      );
      return;
    case "hparams-end":
      writeSession(writer, "end", (data) =>
        message(data, 4, (info) => {
          info.tag(1, WireType.Varint).int32(value.isFailed ? STATUS_FAILURE : STATUS_SUCCESS);
          info.tag(2, WireType.Bit64).double(value.timeMs / 1000);
        }),
      );
  }
}

/** Writes the summary of the plugin `hparams` that starts or ends a session: `tensorboard.hparams.HParamsPluginData`, version 0. */
function writeSession(writer: BinaryWriter, part: "start" | "end", body: (data: BinaryWriter) => void): void {
  const data = new BinaryWriter();
  body(data);
  string(writer, 1, `_hparams_/session_${part}_info`);
  // The plugin reads the metadata alone; a summary needs some tensor.
  message(writer, 8, (tensor) => {
    tensor.tag(1, WireType.Varint).int32(DT_FLOAT);
    message(tensor, 2, () => undefined);
    message(tensor, 5, (values) => void values.float(0));
  });
  writePlugin(writer, "hparams", data.finish());
}

/** Writes the metadata of a summary with the data of its plugin. */
function writePlugin(writer: BinaryWriter, name: string, content: Uint8Array): void {
  message(writer, 9, (metadata) =>
    message(metadata, 1, (plugin) => {
      string(plugin, 1, name);
      if (content.length > 0) plugin.tag(2, WireType.LengthDelimited).bytes(content);
    }),
  );
}

/** Writes an entry of `map<string, google.protobuf.Value>`. */
function writeParameter(writer: BinaryWriter, name: string, value: string | number | boolean): void {
  string(writer, 1, name);
  message(writer, 2, (variant) => {
    if (typeof value === "number") variant.tag(2, WireType.Bit64).double(value);
    else if (typeof value === "string") string(variant, 3, value);
    else variant.tag(4, WireType.Varint).bool(value);
  });
}

/** Writes a field of type string. */
function string(writer: BinaryWriter, field: number, text: string): void {
  writer.tag(field, WireType.LengthDelimited).string(text);
}

/** Writes a field whose value is a message; `body` writes the fields of the message. */
function message(writer: BinaryWriter, field: number, body: (writer: BinaryWriter) => void): void {
  writer.tag(field, WireType.LengthDelimited).fork();
  body(writer);
  writer.join();
}
