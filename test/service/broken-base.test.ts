/** Models on the embedded engine's bases whose files are not whole. */
import { appendFile, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { startService } from "../../src/service/index.ts";
import { CONFIG, fileWith, weights, writeBase, writeWeights } from "./base-files.ts";
import { MODELS, temporaryDirectory } from "./support.ts";

/** Writes whole weights with one number replaced. */
async function breakWeights(directory: string, value: number): Promise<void> {
  await rm(weights(directory));
  await writeWeights(directory);
  const bytes = await readFile(weights(directory));
  const dataStart = 8 + Number(bytes.readBigUInt64LE());
  bytes.writeFloatLE(value, dataStart + 20);
  await writeFile(weights(directory), bytes);
}

test("checks the base's weights when a model is created, and rejects unusable ones", async () => {
  const directory = await writeBase();
  const service = await startService({ dataDir: await temporaryDirectory(), baseModels: { base: directory } });
  onTestFinished(() => service.close({ graceMs: 0 }));
  const request = async (method: string, path: string, body?: object) => {
    const headers = { authorization: `Bearer ${service.apiKey}`, "content-type": "application/json" };
    const response = await fetch(service.url + path, { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
    return { status: response.status, body: (await response.json()) as any };
  };
  const create = () => request("POST", MODELS, { project: "demo", name: "x", base_model: "base" });
  const whole = fileWith({});
  for (const [breakIt, code, message] of [
    [() => rm(weights(directory)), "E_UNSUPPORTED", /found no such file/],
    [() => writeFile(weights(directory), "short"), "E_DATA", /header does not fit in 5 bytes/],
    [() => writeFile(weights(directory), whole.subarray(0, 9)), "E_DATA", /header does not fit in 9 bytes/],
    [() => writeFile(weights(directory), fileWith("text")), "E_DATA", /not a JSON object/],
    [() => writeFile(weights(directory), fileWith({ w: 1 })), "E_DATA", /does not describe tensor "w"/],
    [() => writeFile(weights(directory), whole), "E_DATA", /expected tensor "model.embed_tokens.weight" of shape \[\d+, 8\], found none/],
    [
      () => writeFile(weights(directory), fileWith({ w: { dtype: "I8", shape: [4], data_offsets: [0, 4] } }, 4)),
      "E_UNSUPPORTED",
      /"w" has type I8/,
    ],
    [
      () => writeFile(weights(directory), fileWith({ w: { dtype: "F32", shape: [4], data_offsets: [0, 16] } }, 15)),
      "E_DATA",
      /"w" does not lie inside the file/,
    ],
    [
      () => writeFile(weights(directory), fileWith({ "model.embed_tokens.weight": { dtype: "F32", shape: [2], data_offsets: [0, 8] } }, 8)),
      "E_DATA",
      /"model.embed_tokens.weight" of shape \[\d+, 8\], got \[2\]/,
    ],
    [() => breakWeights(directory, NaN), "E_DATA", /tensor "model\.embed_tokens\.weight" to hold finite numbers, got NaN at element 5/],
    [() => breakWeights(directory, -Infinity), "E_DATA", /to hold finite numbers, got -Infinity/],
    [() => appendFile(weights(directory), Buffer.alloc(4)), "E_DATA", /expected \d+ bytes of data, as the header describes/],
  ] as const) {
    await breakIt();
    const answer = await create();
    expect(JSON.stringify(answer.body)).not.toContain(directory);
    expect(answer).toMatchObject({ status: 422, body: { error: { error_code: code, param: "base_model" } } });
    expect(answer.body.error.message).toMatch(message);
  }
  expect((await request("GET", "/v1/models")).body.data.map((one: { id: string }) => one.id)).not.toContain("local/demo/x");
  // Once the file is whole the same request makes the model.
  await rm(weights(directory));
  await writeWeights(directory);
  expect((await create()).status).toBe(200);
});

test.each([
  ["a file cut short", async (path: string) => truncate(weights(path), 2000), /does not lie inside the file/],
  [
    "a layer without weights",
    async (path: string) => writeFile(join(path, "config.json"), JSON.stringify({ ...CONFIG, num_hidden_layers: 2 })),
    /layers\.1\..* found none/,
  ],
  ["no tokenizer", async (path: string) => rm(join(path, "tokenizer.json")), /tokenizer\.json/],
  ["a tokenizer that is no JSON", async (path: string) => writeFile(join(path, "tokenizer.json"), "{"), /expected JSON/],
])("rejects %s", async (_, breakIt, message) => {
  const directory = await writeBase();
  await breakIt(directory);
  const service = await startService({ dataDir: await temporaryDirectory(), baseModels: { base: directory } });
  onTestFinished(() => service.close({ graceMs: 0 }));
  const response = await fetch(service.url + MODELS, {
    method: "POST",
    headers: { authorization: `Bearer ${service.apiKey}`, "content-type": "application/json" },
    body: JSON.stringify({ project: "demo", name: "x", base_model: "base" }),
  });
  expect(response.status).toBe(422);
  const body: unknown = await response.json();
  expect(JSON.stringify(body)).not.toContain(directory);
  expect(body).toMatchObject({
    error: { error_code: "E_DATA", param: "base_model", message: expect.stringMatching(message) },
  });
});
