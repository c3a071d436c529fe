/** Models and adapters in GGUF against llama.cpp's own converter; `test/oracle/gguf-files.py` wrote the values. */
import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import type { ExportDtype } from "../../src/export/element-encoders.ts";
import { type GgufFile, readGguf } from "./read-gguf.ts";
import { family, ggufAdapterOf, ggufOf, gunzipped } from "./support.ts";

interface Tensor {
  readonly shape: number[];
  readonly type: number;
  readonly sha256?: string;
  readonly values?: number[];
}
interface Described {
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly tensors: Readonly<Record<string, Tensor>>;
}
type Files = Readonly<Record<string, Readonly<Record<ExportDtype, Described>>>>;

const { models, adapters } = await gunzipped<{ models: Files; adapters: Files }>("gguf-files.json.gz");
const cases = (files: Files) =>
  Object.entries(files).flatMap(([name, byType]) => Object.keys(byType).map((dtype) => [name, dtype as ExportDtype] as const));

function expectFile({ metadata, tensors }: GgufFile, expected: Described): void {
  expect(metadata).toMatchObject(expected.metadata);
  expect([...tensors.keys()].toSorted()).toEqual(Object.keys(expected.tensors).toSorted());
  for (const [name, { shape, type, data }] of tensors) {
    const { sha256, values, ...description } = expected.tensors[name]!;
    expect({ shape, type }, name).toEqual(description);
    if (sha256 !== undefined) expect(createHash("sha256").update(data).digest("hex"), name).toBe(sha256);
    // Computed in float32 by the converter, in float64 here.
    else [...new Float32Array(data.buffer)].forEach((value, i) => expect(value / values![i]!, name).toBeCloseTo(1, 6));
  }
}

describe("a model", () => {
  test.each(cases(models))("of %s in %s has the converter's metadata, tensors and bytes", async (name, dtype) => {
    expectFile(readGguf((await ggufOf(family(name, "model"), { preTokenizer: null, dtype })).path), models[name]![dtype]);
  });
});

describe("an adapter", () => {
  test.each(cases(adapters))("of %s in %s has the converter's metadata, tensors and bytes", async (name, dtype) => {
    expectFile(readGguf(await ggufAdapterOf(name, { dtype })), adapters[name]![dtype]);
  });

  test("of another model is rejected", async () => {
    await expect(ggufAdapterOf("llama3", { base: "qwen3" })).rejects.toMatchObject({ code: "E_DATA" });
  });

  test("of a model that llama.cpp does not have is rejected", async () => {
    await expect(ggufAdapterOf("qwen3-biased")).rejects.toMatchObject({ code: "E_UNSUPPORTED", message: expect.stringContaining("bias") });
  });
});
