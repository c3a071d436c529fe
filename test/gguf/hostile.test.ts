/** Damaged and hostile GGUF files: an error that names the problem, or a model that loads. `GGUF_MUTATIONS` sets the number of files. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { readModelConfig } from "../../src/engine/onnx/model/config.ts";
import { verifyWeights } from "../../src/engine/onnx/model/weights.ts";
import { WhetstoneError } from "../../src/base/errors.ts";
import { readGenerationDefaults } from "../../src/service/models/generation-defaults.ts";
import { loadTokenizer } from "../../src/text/tokenizer/index.ts";
import { scratch } from "../export/support.ts";
import { type Field, fieldsOf, smallModel } from "./support.ts";
import { seededRandom } from "../support/seeded-random.ts";

const COUNT = Number(process.env["GGUF_MUTATIONS"] ?? 120);
/** Maximum growth of the process's memory over all files, in bytes. */
const MAX_GROWTH = 600 * 2 ** 20;

const original = await smallModel();
const { fields, headerBytes } = fieldsOf(original);

const HOSTILE = [
  0n,
  1n,
  2n,
  7n,
  255n,
  2n ** 15n,
  2n ** 31n - 1n,
  2n ** 31n,
  2n ** 32n - 1n,
  2n ** 32n,
  2n ** 40n,
  2n ** 53n,
  2n ** 63n,
  2n ** 64n - 1n,
];

function overwrite(file: Buffer, { at, bytes }: Field, value: bigint): void {
  const encoded = Buffer.alloc(8);
  encoded.writeBigUInt64LE(BigInt.asUintN(64, value));
  encoded.copy(file, at, 0, Math.min(bytes, 8));
}

/** Returns a damaged copy of the file. */
function mutated(random: () => number): Buffer {
  const file = Buffer.from(original);
  const below = (limit: number) => Math.floor(random() * limit);
  const pick = <T>(items: readonly T[]): T => items[below(items.length)]!;
  const ofKind = (...kinds: Field["kind"][]) => pick(fields.filter(({ kind }) => kinds.includes(kind)));
  switch (below(9)) {
    case 0:
      for (let flips = 1 + below(8); flips > 0; flips--) file[below(headerBytes)]! ^= 1 << below(8);
      return file;
    case 1:
      return file.subarray(0, below(file.length));
    case 2:
      overwrite(file, ofKind("length", "count"), pick(HOSTILE));
      return file;
    case 3:
      overwrite(file, ofKind("dimension", "offset"), pick(HOSTILE));
      return file;
    case 4:
      overwrite(file, ofKind("type"), BigInt(below(44)));
      return file;
    case 5: {
      const { at, bytes } = ofKind("text");
      for (let changes = 1 + below(4); changes > 0; changes--) file[at + below(Math.max(bytes, 1))] = below(256);
      return file;
    }
    case 6:
      overwrite(file, ofKind("value"), pick(HOSTILE));
      return file;
    case 7: {
      // A field of one place in another: equal names, overlapping tensors.
      const [from, to] = [ofKind("offset", "text"), ofKind("offset", "text")];
      original.copy(file, to.at, from.at, from.at + Math.min(from.bytes, to.bytes));
      return file;
    }
    default: {
      // Nested arrays in place of the first metadata.
      const nested = Buffer.concat(
        Array.from({ length: 1 + below(8) }, () => {
          const level = Buffer.alloc(12);
          level.writeUInt32LE(9);
          level.writeBigUInt64LE(pick([1n, 2n, 2n ** 20n, 2n ** 60n]), 4);
          return level;
        }),
      );
      const { at } = ofKind("type");
      return Buffer.concat([file.subarray(0, at), Buffer.from([9, 0, 0, 0]), nested, file.subarray(at + 4)]);
    }
  }
}

/** Loads a file as the engine and the service do; returns the error. */
async function load(path: string): Promise<unknown> {
  try {
    await verifyWeights(path, await readModelConfig(path));
    const tokenizer = await loadTokenizer(path);
    tokenizer.decode(tokenizer.encode("Hello, world! 123"));
    await readGenerationDefaults(path);
    return null;
  } catch (error) {
    return error;
  }
}

test(`${COUNT} mutations end with an error that names the problem, or load`, { timeout: 600_000 }, async () => {
  const path = join(await scratch(), "mutated.gguf");
  await writeFile(path, original);
  expect(await load(path)).toBe(null);
  const before = process.memoryUsage().rss;
  const results = { loaded: 0, refused: 0 };
  let slowest = 0;
  for (let seed = 1; seed <= COUNT; seed++) {
    await writeFile(path, mutated(seededRandom(seed)));
    const start = performance.now();
    const error = await load(path);
    slowest = Math.max(slowest, performance.now() - start);
    if (error !== null && !(WhetstoneError.isInstance(error) && error.message.length > 20))
      throw new Error(`Mutation ${seed}: expected an error of the library, got ${String(error)}`, { cause: error });
    results[error === null ? "loaded" : "refused"]++;
  }
  if (process.env["GGUF_MUTATIONS"] !== undefined)
    console.log({ ...results, slowestMs: Math.round(slowest), growthMb: Math.round((process.memoryUsage().rss - before) / 2 ** 20) });
  expect(results.refused).toBeGreaterThan(COUNT / 3);
  expect(process.memoryUsage().rss - before).toBeLessThan(MAX_GROWTH);
});

const first = (kind: Field["kind"], name: string): Field => {
  const key = original.indexOf(name);
  return fields.find((field) => field.kind === kind && field.at > key)!;
};

test.each([
  ["another magic", (file: Buffer) => void file.write("GGML"), /expected a GGUF file/u],
  ["big-endian", (file: Buffer) => void file.writeUInt32BE(3, 4), /big-endian/u],
  ["version 1", (file: Buffer) => void file.writeUInt32LE(1, 4), /version 2 or 3, got 1/u],
  ["too many keys", (file: Buffer) => void file.writeBigUInt64LE(2n ** 60n, 16), /metadata_kv_count: expected at most 4096/u],
  ["too many tensors", (file: Buffer) => void file.writeBigUInt64LE(2n ** 60n, 8), /tensor_count: expected at most 65536/u],
  [
    "an unknown family",
    (file: Buffer) => void file.write("llamb", original.indexOf("llama")),
    /general\.architecture: expected one of llama,/u,
  ],
  [
    "a string beyond the file",
    (file: Buffer) => overwrite(file, first("length", "tokenizer.ggml.pre"), 2n ** 31n),
    /tokenizer\.ggml\.pre/u,
  ],
  [
    "overlapping tensors",
    (file: Buffer) => overwrite(file, first("offset", "blk.1.attn_q.weight"), 0n),
    /"blk\.1\.attn_q\.weight": expected offset/u,
  ],
  ["a shape of 2^40", (file: Buffer) => overwrite(file, first("dimension", "blk.0.attn_q.weight"), 2n ** 40n), /"blk\.0\.attn_q\.weight"/u],
  ["NaN in a tensor", (file: Buffer) => void file.fill(0xff, file.length - 64), /finite numbers, got NaN/u],
])("%s is named", async (_, damage, message) => {
  const file = Buffer.from(original);
  damage(file);
  const path = join(await scratch(), "model.gguf");
  await writeFile(path, file);
  expect(await load(path)).toMatchObject({ message: expect.stringMatching(message) });
});

/** Returns a copy of the file with a first key, an array of as many numbers as keep the tensors aligned. */
function withArray(key: string, value: number): Buffer {
  const bytes = (size: number, write: (buffer: Buffer) => void) => {
    const buffer = Buffer.alloc(size);
    write(buffer);
    return buffer;
  };
  const u32 = (number: number) => bytes(4, (buffer) => buffer.writeUInt32LE(number));
  const u64 = (number: number) => bytes(8, (buffer) => buffer.writeBigUInt64LE(BigInt(number)));
  const count = 32 - ((8 + key.length + 16) % 32);
  // 9 = array, 0 = uint8.
  const entry = [u64(key.length), Buffer.from(key), u32(9), u32(0), u64(count), Buffer.alloc(count, value)];
  const file = Buffer.concat([original.subarray(0, 24), ...entry, original.subarray(24)]);
  file.writeBigUInt64LE(original.readBigUInt64LE(16) + 1n, 16);
  return file;
}

test.each(["llama.expert_count", "llama.attn_logit_softcapping", "llama.attention.clamp_kqv"])(
  "an array of %s is refused unless all its numbers are 0",
  async (key) => {
    const path = join(await scratch(), "model.gguf");
    await writeFile(path, withArray(key, 0));
    expect(await load(path)).toBeNull();
    await writeFile(path, withArray(key, 8));
    expect(await load(path)).toMatchObject({ code: "E_UNSUPPORTED", message: expect.stringContaining(`${key}: 8 is not supported`) });
  },
);

test("a part of a split model is refused with the command that joins it", async () => {
  const path = join(await scratch(), "model-00001-of-00003.gguf");
  await writeFile(path, original);
  expect(await load(path)).toMatchObject({ code: "E_UNSUPPORTED", message: expect.stringContaining("--merge") });
});

test("a special token with the id -1 is absent, and any other id must be one of a token", async () => {
  const path = join(await scratch(), "model.gguf");
  const key = "tokenizer.ggml.bos_token_id";
  const load = async (id: number) => {
    const file = Buffer.from(original);
    // The type of the value, four bytes, follows the key.
    file.writeUInt32LE(id, file.indexOf(key) + key.length + 4);
    await writeFile(path, file);
    return loadTokenizer(path);
  };
  await expect(load(2 ** 32 - 1)).resolves.toBeDefined();
  await expect(load(640)).rejects.toThrow(`${key}: expected the id of a token below 640, got 640`);
});
