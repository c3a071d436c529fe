import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type Datum, lossCall } from "../../../src/engine/tinker/datum.ts";
import { decodePass, decodeSample, encodeForward, encodePass } from "../../../src/engine/tinker/encoding.ts";
import type { Row } from "../../../src/engine/port.ts";
import { exchanges } from "./replay-server.ts";

/** Output of `test/oracle/tinker_messages.py`. */
const oracle = JSON.parse(readFileSync(join(import.meta.dirname, "../../oracle/tinker-messages.json"), "utf8")) as {
  rows: { tokens: number[]; targets: number[]; advantages: number[]; logprobs: number[] }[];
  request: string;
  logprobs: number[][];
  output: Record<"float32" | "bfloat16", string>;
  sample: string;
};

describe("protobuf", () => {
  it("encodes requests to the bytes of the protocol's SDK", () => {
    const data = oracle.rows.map(({ tokens, targets, advantages, logprobs }): Datum => ({
      input: Int32Array.from(tokens),
      targets: Int32Array.from(targets),
      inputs: { logprobs: Float32Array.from(logprobs), advantages: Float32Array.from(advantages) },
    }));
    const call = { name: "cispo", config: { clip_low_threshold: 0.8, clip_high_threshold: 1.3 }, data } as const;
    const [part, ...others] = encodePass(call, "protobuf");
    const { contentType, bytes } = part!.body({ modelId: "model_1", sequence: 300 });
    expect([others.length, contentType, Buffer.from(bytes).toString("hex")]).toEqual([0, "application/x-protobuf", oracle.request]);
  });

  it.each(["float32", "bfloat16"] as const)("decodes results of the SDK with log-probabilities in %s", (type) => {
    const found = decodePass(Buffer.from(oracle.output[type], "hex"));
    // Each value has few bits: both types hold it exactly.
    expect(found.map((row) => [...row])).toEqual(oracle.logprobs);
  });

  it("decodes samples of the SDK", () => {
    expect(decodeSample(Buffer.from(oracle.sample, "hex"))).toEqual([
      { stop_reason: "stop", tokens: [5, 70000], logprobs: [-0.25, -0.5] },
      { stop_reason: "length", tokens: [9], logprobs: [-0.25] },
    ]);
  });
});

describe("JSON", () => {
  const row = (tokens: readonly number[]): Row => ({
    tokens: Int32Array.from(tokens),
    weights: new Float32Array(tokens.length).fill(1, 1),
  });

  it("encodes requests to the body that a real server accepted", () => {
    const recorded = exchanges.find(({ path }) => path === "/api/v1/forward_backward")!.request as {
      model_id: string;
      seq_id: number;
      forward_backward_input: {
        data: { model_input: { chunks: { tokens: number[] }[] }; loss_fn_inputs: Record<string, { data: number[] }> }[];
      };
    };
    const rows = recorded.forward_backward_input.data.map(({ model_input: input, loss_fn_inputs: inputs }) =>
      row([...input.chunks[0]!.tokens, inputs["target_tokens"]!.data.at(-1)!]),
    );
    const [part] = encodePass(lossCall(rows, { kind: "cross-entropy" }, "sum", 1), "json");
    const { bytes } = part!.body({ modelId: recorded.model_id, sequence: recorded.seq_id });
    expect(JSON.parse(String(bytes))).toEqual(recorded);
  });

  it("splits a call that exceeds the server's limits, in order", () => {
    const call = (count: number, length: number) =>
      lossCall(
        Array.from({ length: count }, (_, i) => row(Array.from({ length }, (__, t) => i + t))),
        { kind: "cross-entropy" },
        "sum",
        1,
      );
    expect(encodePass(call(2500, 3), "json").map(({ count }) => count)).toEqual([1024, 1024, 452]);
    const long = encodeForward(call(30, 20_000));
    expect(long.reduce((sum, { count }) => sum + count, 0)).toBe(30);
    const bodies = long.map((part) => String(part.body({ modelId: "m", sequence: 1 }).bytes));
    for (const body of bodies) expect(body.length).toBeLessThan(5_001_000);
    const first = bodies.flatMap((body) =>
      (JSON.parse(body) as { forward_input: { data: { model_input: { chunks: { tokens: number[] }[] } }[] } }).forward_input.data.map(
        ({ model_input: input }) => input.chunks[0]!.tokens[0],
      ),
    );
    expect(first).toEqual(Array.from({ length: 30 }, (_, i) => i));
  });
});
