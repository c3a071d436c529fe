/**
 * Encodings of data and results: JSON, and the protobuf messages of the Tinker protocol. Field numbers are from the protocol's definition
 * of the message that a function names.
 */
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { EngineError } from "../../base/errors.ts";
import type { TinkerSequence } from "./answers.ts";
import type { Datum, LossCall } from "./datum.ts";
import type { Body } from "./transport.ts";

/** Encoding of requests and results. */
export type TinkerEncoding = "json" | "protobuf";

/** Maximum number of data in one call. More data are split into several calls; their gradients accumulate. */
const MAX_DATA = 1024;
/** Maximum size of the encoded data of one call, in bytes. */
const MAX_BYTES = 5_000_000;

/** Tensor element types of the protobuf messages. */
const FLOAT32 = 1;
const INT64 = 2;
const BFLOAT16 = 4;

/** Model and sequence number of a request. */
export interface PassAddress {
  readonly modelId: string;
  readonly sequence: number;
}

/** Request of a pass, complete except for its address. */
export interface PassPart {
  /** Number of data in the request. */
  readonly count: number;
  readonly body: (address: PassAddress) => Body;
}

/** Encodes a forward-backward pass as one or more requests. */
export function encodePass(call: LossCall, encoding: TinkerEncoding): PassPart[] {
  if (encoding === "json") return encodeForward(call, "forward_backward_input");
  return inParts(call.data.map(protobufDatum)).map((data) => ({
    count: data.length,
    body: (address) => ({ contentType: "application/x-protobuf", bytes: protobufPass(address, call, data) }),
  }));
}

/**
 * Encodes a pass as JSON. Forward passes always use JSON: in protobuf, a forward pass is a forward-backward pass with a flag, and a
 * server that ignores the flag would accumulate gradients.
 */
export function encodeForward(call: LossCall, key: "forward_input" | "forward_backward_input" = "forward_input"): PassPart[] {
  // The data are encoded one by one, to measure their size, so the JSON around them is put together as text.
  const tail = `],"loss_fn":${JSON.stringify(call.name)},"loss_fn_config":${JSON.stringify(call.config)}}}`;
  return inParts(call.data.map(jsonDatum)).map((data) => ({
    count: data.length,
    body: ({ modelId, sequence }) => ({
      contentType: "application/json",
      bytes: `{"model_id":${JSON.stringify(modelId)},"seq_id":${sequence},"${key}":{"data":[${data.join(",")}${tail}`,
    }),
  }));
}

/** Splits encoded data into calls within the limits. A datum larger than the limit is sent alone. */
function inParts<T extends string | Uint8Array>(data: readonly T[]): T[][] {
  const parts: T[][] = [];
  let part: T[] = [];
  /** Bytes of the current part; infinite before the first one, so that the first datum begins it. */
  let bytes = Infinity;
  for (const datum of data) {
    if (bytes + datum.length > MAX_BYTES || part.length === MAX_DATA) {
      part = [];
      parts.push(part);
      bytes = 0;
    }
    part.push(datum);
    bytes += datum.length;
  }
  return parts;
}

/** Encodes a datum as JSON. */
function jsonDatum({ input, targets, inputs }: Datum): string {
  const shape = [targets.length];
  const tensors = Object.entries(inputs).map(([name, data]) => [name, { data: [...data], dtype: "float32", shape }]);
  return JSON.stringify({
    model_input: { chunks: [{ type: "encoded_text", tokens: [...input] }] },
    loss_fn_inputs: { target_tokens: { data: [...targets], dtype: "int64", shape }, ...(Object.fromEntries(tensors) as object) },
  });
}

/** Encodes a `ForwardBackwardRequest`. */
function protobufPass({ modelId, sequence }: PassAddress, { name, config }: LossCall, data: readonly Uint8Array[]): Uint8Array {
  const writer = new BinaryWriter();
  writer.tag(1, WireType.LengthDelimited).string(modelId);
  writer.tag(2, WireType.Varint).int32(sequence);
  for (const datum of data) writer.tag(3, WireType.LengthDelimited).bytes(datum);
  writer.tag(4, WireType.LengthDelimited).string(name);
  for (const [key, value] of sorted(config ?? {}))
    message(writer, 5, (entry) => entry.tag(1, WireType.LengthDelimited).string(key).tag(2, WireType.Bit64).double(value));
  return writer.finish();
}

/** Encodes a `Datum`. */
function protobufDatum({ input, targets, inputs }: Datum): Uint8Array {
  const writer = new BinaryWriter();
  message(writer, 1, (chunk) => message(chunk, 1, (text) => text.tag(1, WireType.LengthDelimited).bytes(bytesOf(input))));
  const tensors = { target_tokens: BigInt64Array.from(targets, BigInt), ...inputs };
  for (const [name, data] of sorted<Float32Array | BigInt64Array>(tensors))
    tensorEntry(writer, name, data instanceof Float32Array ? FLOAT32 : INT64, data);
  return writer.finish();
}

/** Returns the entries of a map in the order of their keys, so that equal data are encoded as equal bytes. */
function sorted<T>(map: Readonly<Record<string, T>>): [string, T][] {
  return Object.entries(map).sort(([a], [b]) => (a < b ? -1 : 1));
}

/** Writes one entry of `loss_fn_inputs`. */
function tensorEntry(writer: BinaryWriter, name: string, type: number, data: Float32Array | BigInt64Array): void {
  message(writer, 2, (entry) => {
    entry.tag(1, WireType.LengthDelimited).string(name);
    message(entry, 2, (tensor) => {
      tensor.tag(1, WireType.LengthDelimited).bytes(bytesOf(data));
      tensor.tag(3, WireType.Varint).int32(type);
      message(tensor, 4, (shape) => shape.int64(data.length));
    });
  });
}

/** Writes a field that is a message; `body` writes the fields of the message. */
function message(writer: BinaryWriter, field: number, body: (writer: BinaryWriter) => unknown): void {
  writer.tag(field, WireType.LengthDelimited).fork();
  body(writer);
  writer.join();
}

/** Returns the bytes of an array without a copy. The wire format is little-endian, like all processors that onnxruntime supports. */
function bytesOf({ buffer, byteOffset, byteLength }: Int32Array | Float32Array | BigInt64Array): Uint8Array {
  return new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength);
}

/** Copies bytes to the start of a new buffer, because a typed array needs an aligned offset. */
function alignedCopy(bytes: Uint8Array): ArrayBuffer {
  return new Uint8Array(bytes).buffer;
}

/** Returns the values of a message's field, and skips all other fields. */
function valuesOf<T>(message: Uint8Array, wantedField: number, read: (reader: BinaryReader) => T): T[] {
  const reader = new BinaryReader(message);
  const values: T[] = [];
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    if (field === wantedField) values.push(read(reader));
    else reader.skip(type, field);
  }
  return values;
}

// As protobuf demands, the last value of a field that is not repeated counts; an absent field has its default.
const allBytes = (message: Uint8Array, field: number) => valuesOf(message, field, (reader) => reader.bytes());
const lastBytes = (message: Uint8Array, field: number) => allBytes(message, field).at(-1) ?? new Uint8Array();
const lastInteger = (message: Uint8Array, field: number) => valuesOf(message, field, (reader) => reader.int32()).at(-1) ?? 0;

/** Returns the log-probabilities of a `ForwardBackwardOutput`, shape `[T − 1]` per datum. */
export function decodePass(bytes: Uint8Array): Float32Array[] {
  const records = allBytes(bytes, 2).flatMap((output) => allBytes(output, 2));
  const logprobs = records.filter((record) => Buffer.from(lastBytes(record, 1)).toString() === "logprobs");
  return logprobs.flatMap((record) => batchedTensor(lastBytes(record, 2)));
}

/** Decodes a `BatchedTensor`: the concatenated data of all tensors, and the byte offset of each tensor. */
function batchedTensor(bytes: Uint8Array): Float32Array[] {
  const [data, offsets, type] = [lastBytes(bytes, 1), lastBytes(bytes, 2), lastInteger(bytes, 3)];
  if (type !== FLOAT32 && type !== BFLOAT16) throw new EngineError(`The server sent log-probabilities of the unknown element type ${type}`);
  // Offset of each tensor, and of the end of the last one.
  const starts = new BigInt64Array(alignedCopy(offsets));
  return Array.from({ length: Math.max(0, starts.length - 1) }, (_, i) => {
    const tensor = alignedCopy(data.subarray(Number(starts[i]), Number(starts[i + 1])));
    if (type === FLOAT32) return new Float32Array(tensor);
    // A bfloat16 is the upper half of a float32.
    return new Float32Array(Uint32Array.from(new Uint16Array(tensor), (half) => half << 16).buffer);
  });
}

/** Returns the sequences of a `SampleResponse`. */
export function decodeSample(bytes: Uint8Array): TinkerSequence[] {
  return allBytes(bytes, 1).map((sequence) => ({
    stop_reason: lastInteger(sequence, 1) === 1 ? "length" : "stop",
    tokens: [...new Int32Array(alignedCopy(lastBytes(sequence, 2)))],
    logprobs: [...new Float32Array(alignedCopy(lastBytes(sequence, 3)))],
  }));
}
