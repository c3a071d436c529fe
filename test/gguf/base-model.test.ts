/** GGUF files as base models: written from model directories by the export, and read back. */
import { describe, expect, test } from "vitest";
import { readModelConfig } from "../../src/engine/onnx/model/config.ts";
import { baseLayout } from "../../src/engine/onnx/model/parameters.ts";
import { readBaseWeights } from "../../src/engine/onnx/model/weights.ts";
import { family, ggufOf } from "../export/support.ts";

describe.each(["llama3", "qwen2", "qwen3", "smollm3"])("%s", (name) => {
  test("has the configuration and the weights of the directory it was written from", async () => {
    const directory = family(name, "model");
    const { path } = await ggufOf(directory, { preTokenizer: null });
    const expected = await readModelConfig(directory);
    const config = await readModelConfig(path);
    expect({ ...config, normEpsilon: Math.fround(config.normEpsilon) }).toEqual({
      ...expected,
      normEpsilon: Math.fround(expected.normEpsilon),
      initializerRange: 0.02,
    });
    expect(await readBaseWeights(path, baseLayout(config))).toEqual(await readBaseWeights(directory, baseLayout(expected)));
  });
});
