/** Models on bases of the embedded engine with incomplete files. */
import { appendFile, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { uploadDataset } from "../../src/library/dataset/index.ts";
import { connect } from "../../src/index.ts";
import { startService } from "../../src/service/index.ts";
import { CONFIG, fileWith, weights, writeBase, writeWeights } from "./base-files.ts";
import { MODELS, temporaryDirectory } from "./support.ts";

const user = { role: "user", content: "hello" };

/** Fails the test at an error in the log: a request that is answered with its cause needs none. */
const failingLogger = {
  info: () => {},
  warn: () => {},
  error: (message: string, facts?: object) => expect.fail(`${message} ${JSON.stringify(facts)}`),
};

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
  for (const [breakIt, message] of [
    [() => rm(weights(directory)), /found no such file/],
    [() => writeFile(weights(directory), "short"), /header does not fit in 5 bytes/],
    [() => writeFile(weights(directory), whole.subarray(0, 9)), /header does not fit in 9 bytes/],
    [() => writeFile(weights(directory), fileWith("text")), /not a JSON object/],
    [() => writeFile(weights(directory), fileWith({ w: 1 })), /does not describe tensor "w"/],
    [() => writeFile(weights(directory), whole), /expected tensor "model.embed_tokens.weight" of shape \[\d+, 8\], found none/],
    [() => writeFile(weights(directory), fileWith({ w: { dtype: "I8", shape: [4], data_offsets: [0, 4] } }, 4)), /"w" has type I8/],
    [
      () => writeFile(weights(directory), fileWith({ w: { dtype: "F32", shape: [4], data_offsets: [0, 16] } }, 15)),
      /"w" does not lie inside the file/,
    ],
    [
      () => writeFile(weights(directory), fileWith({ "model.embed_tokens.weight": { dtype: "F32", shape: [2], data_offsets: [0, 8] } }, 8)),
      /"model.embed_tokens.weight" of shape \[\d+, 8\], got \[2\]/,
    ],
    [() => breakWeights(directory, NaN), /tensor "model\.embed_tokens\.weight" to hold finite numbers, got NaN at element 5/],
    [() => breakWeights(directory, -Infinity), /to hold finite numbers, got -Infinity/],
    [() => appendFile(weights(directory), Buffer.alloc(4)), /expected \d+ bytes of data, as the header describes/],
  ] as const) {
    await breakIt();
    const answer = await create();
    expect(JSON.stringify(answer.body)).not.toContain(directory);
    expect(answer).toMatchObject({ status: 422, body: { error: { error_code: "E_BASE_MODEL", param: "base_model" } } });
    expect(answer.body.error.message).toMatch(message);
  }
  expect((await request("GET", "/v1/models")).body.data.map((one: { id: string }) => one.id)).not.toContain("local/demo/x");
  // Once the file is whole the same request makes the model.
  await rm(weights(directory));
  await writeWeights(directory);
  expect((await create()).status).toBe(200);
});

const BROKEN: readonly [string, (path: string) => Promise<unknown>, RegExp][] = [
  ["a tokenizer that is no JSON", async (path) => writeFile(join(path, "tokenizer.json"), "{"), /tokenizer\.json: expected JSON/],
  ["no tokenizer", async (path) => rm(join(path, "tokenizer.json")), /Expected a `tokenizer\.json`, found none/],
  ["an unsupported tokenizer", breakTokenizer, /expected a BPE tokenizer/],
  ["an unknown family", async (path) => writeConfig(path, { architectures: ["MambaForCausalLM"] }), /got \["MambaForCausalLM"\]/],
  ["no weights", async (path) => rm(weights(path)), /found no such file/],
  ["truncated weights", async (path) => truncate(weights(path), 2000), /does not lie inside the file/],
  ["a layer without weights", async (path) => writeConfig(path, { num_hidden_layers: 2 }), /layers\.1\..* found none/],
  ["weights with NaN", async (path) => breakWeights(path, NaN), /to hold finite numbers, got NaN/],
  ["a template with a syntax error", async (path) => writeFile(join(path, "chat_template.jinja"), "{% if %}"), /chat_template\.jinja: /],
  [
    "sampling defaults out of bounds",
    async (path) => writeFile(join(path, "generation_config.json"), JSON.stringify({ temperature: -1 })),
    /generation_config\.json: expected sampling defaults/,
  ],
  ["no configuration", async (path) => rm(join(path, "config.json")), /config\.json/],
];

async function writeConfig(path: string, changes: object): Promise<void> {
  await writeFile(join(path, "config.json"), JSON.stringify({ ...CONFIG, ...changes }));
}

async function breakTokenizer(path: string): Promise<void> {
  const file = JSON.parse(await readFile(join(path, "tokenizer.json"), "utf8")) as { model: object };
  await writeFile(join(path, "tokenizer.json"), JSON.stringify({ ...file, model: { ...file.model, type: "WordPiece" } }));
}

test("answers every request for a base that cannot be loaded with a 4xx and the cause", async () => {
  const options = { dataDir: await temporaryDirectory(), allowedBaseRoots: "any", samplers: 1 } as const;
  const bases = await Promise.all(BROKEN.map(async ([name, breakIt, message]) => ({ name, breakIt, message, path: await writeBase() })));
  const before = await startService(options);
  onTestFinished(() => before.close({ graceMs: 0 }));
  const client = await connect({ baseUrl: before.url, apiKey: before.apiKey });
  const models: Record<string, string> = {};
  for (const [index, { name, path }] of bases.entries()) {
    const model = await client.models.create({ project: "broken", name: `model-${index}`, baseModel: path });
    models[name] = model.id;
  }
  const examples = [{ messages: [user, { role: "assistant", content: "hi" }] }];
  const { url } = await uploadDataset(client, { name: "examples", train: examples });
  await client.close();
  await before.close({ graceMs: 0 });

  for (const { path, breakIt } of bases) await breakIt(path);
  const service = await startService({ ...options, logger: failingLogger });
  onTestFinished(() => service.close({ graceMs: 0 }));
  const headers = { authorization: `Bearer ${service.apiKey}`, "content-type": "application/json" };
  const post = (path: string, body: object) => fetch(service.url + path, { method: "POST", headers, body: JSON.stringify(body) });
  for (const { name, path: model, message } of bases) {
    for (const [route, body] of [
      ["/v1/chat/completions", { model, messages: [user] }],
      ["/v1/chat/completions", { model, messages: [user], stream: true }],
      ["/v1/responses", { model, input: "hello" }],
      ["/v1/responses", { model, input: "hello", stream: true }],
      ["/v1/messages", { model, max_tokens: 4, messages: [user] }],
      ["/v1/completions", { model, prompt: "hello" }],
      ["/v1/chat/completions", { model: `local/broken/model-${bases.findIndex((base) => base.name === name)}`, messages: [user] }],
      ["/v1/preview/models", { project: "broken", name: "another", base_model: model }],
      ["/v1/preview/sft-training-jobs", { model_id: models[name], training_data_url: url }],
    ] as const) {
      const what = `${name}: ${route} ${JSON.stringify(body)}`;
      const response = await post(route, body);
      const { error } = (await response.json()) as { error: { message: string; error_code: string } };
      expect(error.message, what).toMatch(message);
      expect([422, 404], what).toContain(response.status);
      expect(["E_BASE_MODEL", "E_NOT_FOUND"], what).toContain(error.error_code);
    }
  }
});

const AT_START = ["an unsupported tokenizer", "a layer without weights", "a template with a syntax error"];

test.each(BROKEN.filter(([name]) => AT_START.includes(name)))("does not start with %s", async (_, breakIt, message) => {
  const directory = await writeBase();
  await breakIt(directory);
  const dataDir = await temporaryDirectory();
  const failure: unknown = await startService({ dataDir, baseModels: { "whetstone-tiny-2": directory } }).catch((error: unknown) => error);
  expect(failure).toMatchObject({ code: "E_BASE_MODEL", param: "baseModels", message: expect.stringMatching(message) });
  expect((failure as Error).message).toMatch(/^The base model 'whetstone-tiny-2' cannot be loaded: /);
  expect((failure as Error).message).not.toContain(directory);
  // Nothing is left that keeps the data directory locked.
  await (await startService({ dataDir })).close({ graceMs: 0 });
});
