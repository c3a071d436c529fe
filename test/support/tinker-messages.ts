/** The server's side of the protocol's protobuf messages: requests read, results written. */
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";

/** Datum on the wire; all arrays have the same length. */
export interface WireDatum {
  readonly tokens: readonly number[];
  readonly targets: readonly number[];
  readonly weights?: readonly number[] | undefined;
  readonly advantages?: readonly number[] | undefined;
  readonly logprobs?: readonly number[] | undefined;
}

export interface WirePass {
  readonly data: readonly WireDatum[];
  readonly lossFn: string;
  readonly config: Readonly<Record<string, number>>;
}

function* entries(bytes: Uint8Array): Generator<{ readonly field: number; readonly reader: BinaryReader; readonly type: WireType }> {
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    yield { field, reader, type };
  }
}

/** `ForwardBackwardRequest`. */
export function readPassRequest(bytes: Uint8Array): WirePass & { readonly modelId: string; readonly sequence: number } {
  let [modelId, sequence, lossFn] = ["", 0, ""];
  const data: WireDatum[] = [];
  const config: Record<string, number> = {};
  for (const { field, reader, type } of entries(bytes)) {
    if (field === 1) modelId = reader.string();
    else if (field === 2) sequence = reader.int32();
    else if (field === 3) data.push(readDatum(reader.bytes()));
    else if (field === 4) lossFn = reader.string();
    else if (field === 5) {
      let name = "";
      for (const entry of entries(reader.bytes())) {
        if (entry.field === 1) name = entry.reader.string();
        else config[name] = entry.reader.double();
      }
    } else reader.skip(type, field);
  }
  return { modelId, sequence, lossFn, config, data };
}

function readDatum(bytes: Uint8Array): WireDatum {
  let tokens: number[] = [];
  const tensors: Record<string, number[]> = {};
  for (const { field, reader } of entries(bytes)) {
    if (field === 1) {
      for (const chunk of entries(reader.bytes()))
        for (const text of entries(chunk.reader.bytes())) tokens = [...new Int32Array(new Uint8Array(text.reader.bytes()).buffer)];
      continue;
    }
    let name = "";
    for (const entry of entries(reader.bytes())) {
      if (entry.field === 1) name = entry.reader.string();
      else tensors[name] = readTensor(entry.reader.bytes());
    }
  }
  return {
    tokens,
    targets: tensors["target_tokens"]!,
    weights: tensors["weights"],
    advantages: tensors["advantages"],
    logprobs: tensors["logprobs"],
  };
}

function readTensor(bytes: Uint8Array): number[] {
  let data: Uint8Array = new Uint8Array();
  let isFloat = false;
  for (const { field, reader, type } of entries(bytes)) {
    if (field === 1) data = new Uint8Array(reader.bytes());
    else if (field === 3) isFloat = reader.int32() === 1;
    else reader.skip(type, field);
  }
  return isFloat ? [...new Float32Array(data.buffer as ArrayBuffer)] : [...new BigInt64Array(data.buffer as ArrayBuffer)].map(Number);
}

function message(writer: BinaryWriter, field: number, body: (writer: BinaryWriter) => void): void {
  writer.tag(field, WireType.LengthDelimited).fork();
  body(writer);
  writer.join();
}

/** `ForwardBackwardOutput` with one record of log-probabilities. */
export function writePassOutput(rows: readonly Float32Array[]): Uint8Array {
  const offsets = rows.reduce<bigint[]>((all, row) => [...all, all.at(-1)! + BigInt(row.byteLength)], [0n]);
  const writer = new BinaryWriter();
  writer.tag(1, WireType.LengthDelimited).string("ArrayRecord");
  message(writer, 2, (record) => {
    message(record, 2, (entry) => {
      entry.tag(1, WireType.LengthDelimited).string("logprobs");
      message(entry, 2, (tensor) => {
        tensor.tag(1, WireType.LengthDelimited).bytes(Buffer.concat(rows.map((row) => Buffer.from(Float32Array.from(row).buffer))));
        tensor.tag(2, WireType.LengthDelimited).bytes(new Uint8Array(BigInt64Array.from(offsets).buffer));
        tensor.tag(3, WireType.Varint).int32(1);
      });
    });
    record.tag(3, WireType.Varint).int32(rows.length);
  });
  return writer.finish();
}

/** `SampleResponse`. */
export function writeSampleResponse(
  sequences: readonly { readonly stop_reason: string; readonly tokens: readonly number[]; readonly logprobs: readonly number[] }[],
): Uint8Array {
  const writer = new BinaryWriter();
  for (const { stop_reason: reason, tokens, logprobs } of sequences) {
    message(writer, 1, (sequence) => {
      if (reason === "length") sequence.tag(1, WireType.Varint).int32(1);
      sequence.tag(2, WireType.LengthDelimited).bytes(new Uint8Array(Int32Array.from(tokens).buffer));
      sequence.tag(3, WireType.LengthDelimited).bytes(new Uint8Array(Float32Array.from(logprobs).buffer));
    });
  }
  return writer.finish();
}
