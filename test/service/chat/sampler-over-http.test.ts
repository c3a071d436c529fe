/** The sampler over HTTP: the shipped model, one sampling row, and a prefix cache with reported hits. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createOnnxEngine, type Engine } from "../../../src/engine/index.ts";
import { startService, type RunningService } from "../../../src/service/index.ts";
import { MODEL_DIRECTORY } from "./support.ts";

let service: RunningService;
let directory: string;
/** Number of tokens of each request, and whether it has ended. */
const requests: { tokens: number; isOver: boolean }[] = [];

/** Returns the engine with recorded requests. */
function watched(engine: Engine): Engine {
  async function* sample(...args: Parameters<Engine["sample"]>) {
    const request = { tokens: 0, isOver: false };
    requests.push(request);
    try {
      for await (const token of engine.sample(...args)) {
        request.tokens++;
        yield token;
      }
    } finally {
      request.isOver = true;
    }
  }
  return new Proxy(engine, {
    get: (target, name: keyof Engine) => (name === "sample" ? sample : (target[name] as (...args: unknown[]) => unknown).bind(target)),
  });
}

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "sampler-http-"));
  const engine = await createOnnxEngine({ baseModels: { "whetstone-tiny": MODEL_DIRECTORY }, maxSamplingRows: 1 });
  service = await startService({ dataDir: directory, engine: watched(engine), limits: { chat: { reportCachedTokens: true } } });
});
afterAll(async () => {
  await service.close();
  await rm(directory, { recursive: true });
});

function post(body: object, signal?: AbortSignal): Promise<Response> {
  return fetch(`${service.url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${service.apiKey}` },
    body: JSON.stringify({ messages: [{ role: "user", content: "say" }], seed: 1, ...body }),
    ...(signal ? { signal } : {}),
  });
}
async function complete(body: object): Promise<any> {
  const response = await post(body);
  const parsed: any = await response.json();
  expect(response.status, JSON.stringify(parsed)).toBe(200);
  return parsed;
}

describe("a client that disconnects", () => {
  it.each([true, false])("releases its slot, streaming: %s", async (stream) => {
    const controller = new AbortController();
    const from = requests.length;
    const pending = post({ max_tokens: 900, ignore_eos: true, stream }, controller.signal);
    if (stream) await (await pending).body!.getReader().read();
    else while ((requests[from]?.tokens ?? 0) === 0) await new Promise(setImmediate);
    controller.abort();
    await pending.then(
      () => {},
      () => {},
    );
    // The engine has one slot, so this answer requires that it is free.
    expect((await complete({ max_tokens: 2 })).usage.completion_tokens).toBeLessThanOrEqual(2);
    expect(requests[from]!.isOver).toBe(true);
    expect(requests[from]!.tokens).toBeLessThan(900);
  });
});

describe("cached tokens", () => {
  const system = { role: "system", content: "You write words backwards, one after another, and nothing else." };
  const ask = (content: string, more: object = {}) => ({ messages: [system, { role: "user", content }], max_tokens: 2, ...more });

  it("are whole blocks of a shared prompt prefix, and null without a shared prefix", async () => {
    expect((await complete(ask("first"))).usage.prompt_tokens_details).toBeNull();
    const { usage } = await complete(ask("second"));
    expect(usage.prompt_tokens_details.cached_tokens % 16).toBe(0);
    expect(usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(0);
    expect(usage.prompt_tokens_details.cached_tokens).toBeLessThan(usage.prompt_tokens);
    expect((await complete(ask("second", { cache_salt: "private" }))).usage.prompt_tokens_details).toBeNull();
    expect((await complete(ask("second", { prompt_logprobs: 1 }))).usage.prompt_tokens_details).toBeNull();
  });

  it("are in the final usage of a stream", async () => {
    await complete(ask("third"));
    const text = await (await post(ask("third", { stream: true, stream_options: { include_usage: true } }))).text();
    const chunks = text.split("\n\n").flatMap((line) => (line.startsWith("data: {") ? [JSON.parse(line.slice(6))] : []));
    expect(chunks.at(-1).usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(0);
  });
});
