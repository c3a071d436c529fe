/** Directories that are no base model but an attack: each is refused by name, and neither blocks nor ends the service. */
import { execFileSync } from "node:child_process";
import { readFile, rm, stat, symlink, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { BaseInspector } from "../../src/engine/onnx/threads/base-inspector.ts";
import { startService } from "../../src/service/index.ts";
import { CONFIG, fileWith, weights, writeBase } from "./base-files.ts";
import { MODELS, temporaryDirectory } from "./support.ts";

const config = (changes: object) => (directory: string) =>
  writeFile(join(directory, "config.json"), JSON.stringify({ ...CONFIG, ...changes }));

const replaceBy = (name: string, write: (path: string) => unknown) => async (directory: string) => {
  await rm(join(directory, name), { force: true });
  await write(join(directory, name));
};

const fifo = (path: string) => execFileSync("mkfifo", [path]);

async function regex(directory: string): Promise<void> {
  const path = join(directory, "tokenizer.json");
  const file = JSON.parse(await readFile(path, "utf8")) as { pre_tokenizer: unknown };
  const split = { type: "Split", pattern: { Regex: "(a+)+$" }, behavior: "Isolated", invert: false };
  await writeFile(path, JSON.stringify({ ...file, pre_tokenizer: { type: "Sequence", pretokenizers: [split, file.pre_tokenizer] } }));
}

const manyTensors = () => {
  const entries = Array.from({ length: 100_000 }, (_, index) => [`t${index}`, { dtype: "F32", shape: [0], data_offsets: [0, 0] }]);
  return fileWith(Object.fromEntries(entries));
};

const CASES: readonly [string, (directory: string) => unknown, RegExp][] = [
  ["a million layers", config({ num_hidden_layers: 1e6 }), /"num_hidden_layers" to be a whole number of at most 1024, got 1000000/],
  ["a context of 10^12", config({ max_position_embeddings: 1e12 }), /"max_position_embeddings" to be a whole number of at most 1048576/],
  [
    "wide heads in a long context",
    config({ max_position_embeddings: 2 ** 20, head_dim: 256 }),
    /max_position_embeddings · head_dim to be at most/,
  ],
  ["a vocabulary of 10^9", config({ vocab_size: 1e9 }), /"vocab_size" to be a whole number/],
  ["half a layer", config({ num_hidden_layers: 0.5 }), /"num_hidden_layers" to be a whole number/],
  [
    "sizes that the tensors do not have",
    config({ hidden_size: 65_536, head_dim: 64, num_hidden_layers: 1024 }),
    /expected tensor .* of shape/,
  ],
  ["a configuration of 5 MB", config({ comment: "x".repeat(5e6) }), /config\.json: expected at most 4194304 bytes/],
  ["a regular expression that never ends", regex, /"\(a\+\)\+\$" repeats a group/],
  ["100,000 tensors", (directory) => writeFile(weights(directory), manyTensors()), /expected at most 65536 tensors, got 100000/],
  [
    "a header of 17 MB",
    (directory) => writeFile(weights(directory), fileWith({ __metadata__: { x: "x".repeat(17 * 2 ** 20) } })),
    /header of at most 16777216 bytes/,
  ],
  [
    "an index of 5,000 files",
    async (directory) => {
      await rm(weights(directory));
      const map = Object.fromEntries(Array.from({ length: 5000 }, (_, index) => [`t${index}`, `${index}.safetensors`]));
      await writeFile(`${weights(directory)}.index.json`, JSON.stringify({ weight_map: map }));
    },
    /expected at most 1024 files, got 5000/,
  ],
  ["a FIFO for a configuration", replaceBy("generation_config.json", fifo), /generation_config\.json: expected a regular file/],
  ["a FIFO for a tokenizer", replaceBy("tokenizer.json", fifo), /tokenizer\.json: expected a regular file/],
  ["a FIFO for weights", replaceBy("model.safetensors", fifo), /model\.safetensors: expected a regular file/],
  ["an endless device for weights", replaceBy("model.safetensors", (path) => symlink("/dev/zero", path)), /a link that leads out of it/],
  ["a foreign file for a tokenizer", replaceBy("tokenizer.json", (path) => symlink("/etc/passwd", path)), /a link that leads out of it/],
];

test.skipIf(process.platform === "win32")("rejects each hostile base by name while the service answers", async () => {
  const paths: Record<string, string> = {};
  for (const [name, attack] of CASES) {
    const directory = await writeBase();
    await attack(directory);
    paths[name] = directory;
  }
  const service = await startService({ dataDir: await temporaryDirectory(), allowedBaseRoots: "any", samplers: 1 });
  onTestFinished(() => service.close({ graceMs: 0 }));
  for (const [name, , message] of CASES) {
    const refused = fetch(service.url + MODELS, {
      method: "POST",
      headers: { authorization: `Bearer ${service.apiKey}`, "content-type": "application/json" },
      body: JSON.stringify({ project: "demo", name: "x", base_model: paths[name] }),
    });
    let isAnswered = false;
    void refused.finally(() => (isAnswered = true));
    while (!isAnswered) {
      expect((await fetch(`${service.url}/health`)).status).toBe(200);
      await delay(10);
    }
    const response = await refused;
    expect(response.status, name).toBe(422);
    const { error } = (await response.json()) as { error: { message: string; param: string } };
    expect(error.message).toMatch(message);
    expect(error.message).not.toContain("root:");
    expect(error.message.length).toBeLessThan(1000);
  }
});

test("ends an inspection at its time and memory limits", async () => {
  const directory = await writeBase();
  const inspect = (limits: object) => new BaseInspector(limits).inspect(directory);
  await expect(inspect({})).resolves.toBeUndefined();
  await expect(inspect({ timeoutMs: 1 })).rejects.toMatchObject({ code: "E_DATA", message: expect.stringContaining("more than 0.001 s") });
  // Less than the thread needs for its own code.
  await expect(inspect({ maxHeapMb: 8 })).rejects.toMatchObject({ code: "E_DATA", message: expect.stringContaining("8 MiB of memory") });
});

test("inspects a directory again only after its files have changed", async () => {
  const directory = await writeBase();
  const inspector = new BaseInspector();
  onTestFinished(() => inspector.close());
  const config = join(directory, "config.json");
  const before = new Date("2026-01-01T00:00:00Z");
  await utimes(config, before, before);
  await inspector.inspect(directory);
  const { size } = await stat(config);
  await writeFile(config, " ".repeat(size));
  await utimes(config, before, before);
  await expect(inspector.inspect(directory)).resolves.toBeUndefined();
  await utimes(config, new Date(), new Date());
  await expect(inspector.inspect(directory)).rejects.toMatchObject({ code: "E_DATA" });
});

test("closing ends a running inspection", async () => {
  const inspector = new BaseInspector();
  const running = inspector.inspect(await writeBase());
  await Promise.all([inspector.close(), expect(running).rejects.toThrow("The engine is closed")]);
});
