import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parseModelConfig } from "../../src/engine/onnx/model/config.ts";
import { rotaryTables } from "../../src/engine/onnx/model/rope.ts";

/** Frequencies as transformers computes them; see `rope.py`. */
interface Expected {
  readonly shared: Readonly<Record<string, unknown>>;
  readonly cases: readonly {
    readonly architecture: string;
    readonly keys: Readonly<Record<string, unknown>>;
    readonly frequencies: readonly number[];
    readonly factor: number;
  }[];
}
const { shared, cases } = JSON.parse(readFileSync(join(import.meta.dirname, "rope.json"), "utf8")) as Expected;
const parse = (keys: object, architecture = "LlamaForCausalLM") =>
  parseModelConfig({ architectures: [architecture], ...shared, ...keys }, "config.json");

describe("rotary settings give the frequencies of transformers", () => {
  test.each(cases.map((each) => [each.architecture, JSON.stringify(each.keys), each] as const))("%s %s", (_, __, each) => {
    const config = parse(each.keys, each.architecture);
    const { cos, sin } = rotaryTables(config);
    const half = config.headSize / 2;
    expect(each.frequencies).toHaveLength(half);
    for (const position of [1, 2, 63]) {
      each.frequencies.forEach((frequency, i) => {
        expect(cos[position * half + i]).toBeCloseTo(each.factor * Math.cos(position * frequency), 4);
        expect(sin[position * half + i]).toBeCloseTo(each.factor * Math.sin(position * frequency), 4);
      });
    }
  });
});

describe("settings that would change the computation are refused by name", () => {
  test.each([
    [{ partial_rotary_factor: 0.5 }, /"partial_rotary_factor": 0\.5/],
    ...["default", "linear", "dynamic", "llama3", "yarn"].flatMap((rope_type) =>
      ["rope_parameters", "rope_scaling"].map(
        (key) =>
          [{ [key]: { rope_type, factor: 2, partial_rotary_factor: 0.5 } }, new RegExp(`"${key}\\.partial_rotary_factor": 0\\.5`)] as const,
      ),
    ),
    [
      { rope_parameters: { full_attention: { rope_type: "linear", factor: 2 } } },
      /"rope_parameters\.full_attention": settings per type of layer/,
    ],
  ] as const)("%j", (keys, message) => {
    expect(() => parse(keys)).toThrow(expect.objectContaining({ code: "E_UNSUPPORTED", message: expect.stringMatching(message) }));
  });

  test("a window that the family has by default, where the file turns it on and gives none", () => {
    for (const architecture of ["Qwen2ForCausalLM", "Qwen3ForCausalLM"]) {
      const long = { use_sliding_window: true, max_window_layers: 2, max_position_embeddings: 8192 };
      expect(parse(long, architecture).window).toEqual({ size: 4096, layers: [2, 3] });
      expect(parse({ ...long, sliding_window: null }, architecture).window).toBeNull();
    }
    expect(parse({ use_sliding_window: true }, "SmolLM3ForCausalLM").window).toBeNull();
  });

  test('a "truncate" that is no boolean', () => {
    expect(() => parse({ rope_scaling: { rope_type: "yarn", factor: 2, truncate: 1 } })).toThrow(/"truncate" to be a boolean, got 1/);
  });
});
