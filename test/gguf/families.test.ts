/** Models that llama.cpp converted to GGUF: configuration and tensors of transformers. `gguf-families.py` wrote the values. */
import { createHash } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { readModelFile } from "../../src/base/gguf/model-files.ts";
import { openGgufWeights } from "../../src/base/gguf/weights.ts";
import { gunzipped, scratch } from "../export/support.ts";

type Json = Readonly<Record<string, unknown>>;

interface Family {
  readonly gguf: string;
  readonly config: Json;
  readonly tensors: Readonly<Record<string, { readonly shape: number[]; readonly sha256: string }>>;
}

const { families } = await gunzipped<{ readonly families: Readonly<Record<string, Family>> }>("gguf-families.json.gz");

/** Keys that describe no computation, or that files with the default value omit. */
const IGNORED = new Set(["transformers_version", "use_cache", "initializer_range", "attention_dropout", "pretraining_tp", "_name_or_path"]);

/** Rounds numbers to float32, the type of numbers in GGUF metadata, at any depth. */
function rounded(value: unknown): unknown {
  if (typeof value === "number") return Math.fround(value);
  if (Array.isArray(value)) return value.map(rounded);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, rounded(each)]));
}

describe.each(Object.keys(families))("%s", (name) => {
  const family = families[name]!;
  const written = async () => {
    const path = join(await scratch(), "model.gguf");
    await writeFile(path, Buffer.from(family.gguf, "base64"));
    return path;
  };

  test("has the configuration of transformers", async () => {
    const text = await readModelFile(await written(), "config.json", { maxBytes: 2 ** 20 });
    const config = rounded(JSON.parse(text!)) as Record<string, unknown>;
    const expected = rounded(family.config) as Record<string, unknown>;
    const differences = Object.keys(config)
      .filter(
        (key) => !IGNORED.has(key) && key in expected && JSON.stringify(sorted(config[key])) !== JSON.stringify(sorted(expected[key])),
      )
      .map((key) => ({ key, ours: config[key], transformers: expected[key] }));
    expect(differences).toEqual([]);
  });

  test("has the tensors of transformers", async () => {
    const weights = await openGgufWeights(await written());
    for (const [tensor, { shape, sha256 }] of Object.entries(family.tensors)) {
      expect({ tensor, shape: weights.shapeOf(tensor) }).toEqual({ tensor, shape });
      const values = new Float32Array(shape.reduce((a, b) => a * b, 1));
      await weights.readPieces(tensor, (piece, first) => values.set(piece, first));
      expect({ tensor, sha256: createHash("sha256").update(new Uint8Array(values.buffer)).digest("hex") }).toEqual({ tensor, sha256 });
    }
    await weights.close();
  });
});

test("the weights of a file with interleaved heads cannot be read without the number of heads", async () => {
  const path = join(await scratch(), "model.gguf");
  const file = Buffer.from(families["llama3"]!.gguf, "base64").toString("latin1");
  await writeFile(path, file.replaceAll("attention.head_count", "attention.head_other"), "latin1");
  const weights = await openGgufWeights(path);
  await expect(weights.readPieces("model.layers.0.self_attn.q_proj.weight", () => {})).rejects.toThrow(/llama\.attention\.head_count/u);
  await weights.close();
});

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, each]) => [key, sorted(each)]),
  );
}
