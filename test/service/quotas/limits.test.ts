/** Limits of API keys and entities: which request is rejected, with which headers, and what use is recorded. */
import OpenAI from "openai";
import { expect, test } from "vitest";
import { durationText } from "../../../src/service/quotas/headers.ts";
import { TokenBucket } from "../../../src/service/quotas/token-bucket.ts";
import { deferred } from "../../../src/base/util/deferred.ts";
import { createKey, KEYS } from "../keys/resources.ts";
import {
  ARTIFACTS,
  chatLines,
  RL_JOBS,
  rlBody,
  restartable,
  startTestService,
  testBase,
  type Answer,
  type TestService,
} from "../support.ts";

const CHAT = "/v1/chat/completions";
const ENTITIES = "/v1/preview/entities";
const USAGE = "/v1/preview/usage";
const chat = (more: object = {}) => ({ model: "tiny", messages: [{ role: "user", content: "hello" }], max_tokens: 3, ...more });
const as = (key: string) => ({ key });
const errorOf = ({ status, body }: Answer) => [status, body.error.error_code, body.error.message];
const limitEntity = ({ ok }: TestService, name: string, limits: object) => ok("PUT", `${ENTITIES}/${name}/limits`, limits);

test("a key over its requests per minute answers 429 with the limit, the time to wait and the headers of the OpenAI API", async () => {
  const service = await startTestService();
  const { key } = await createKey(service, { entity: "acme", limits: { requests_per_minute: 2 } });
  const first = await service.call("POST", CHAT, chat(), as(key));
  expect([first.status, first.headers.get("x-ratelimit-limit-requests"), first.headers.get("x-ratelimit-remaining-requests")]).toEqual([
    200,
    "2",
    "1",
  ]);
  expect(first.headers.get("x-ratelimit-reset-requests")).toMatch(/^(?:[12]\d|30)s$/u);
  expect(first.headers.has("x-ratelimit-limit-tokens")).toBe(false);
  await service.ok("POST", "/v1/completions", { model: "tiny", prompt: "hello", max_tokens: 1 }, as(key));
  const third = await service.call("POST", CHAT, chat(), as(key));
  expect(errorOf(third)).toEqual([
    429,
    "E_RATE_LIMIT",
    expect.stringMatching(
      /^Expected at most 2 requests per minute of the API key \(`requests_per_minute`\)\. Send the request again in (?:2\d|30)\.\d s$/u,
    ),
  ]);
  expect(Number(third.headers.get("retry-after"))).toBeGreaterThan(19);
  expect(Number(third.headers.get("retry-after-ms"))).toBeGreaterThan(19_000);
  // Other keys, and requests that sample nothing, are not affected.
  const other = await createKey(service, { entity: "acme" });
  expect((await service.call("POST", CHAT, chat(), as(other.key))).status).toBe(200);
  expect((await service.call("POST", "/tokenize", { model: "tiny", prompt: "a" }, as(key))).status).toBe(200);
  expect((await service.call("POST", CHAT, chat())).headers.has("x-ratelimit-limit-requests")).toBe(false);
});

test("the keys of an entity share its tokens per minute; a request is admitted while some are left", async () => {
  const service = await startTestService();
  await limitEntity(service, "acme", { tokens_per_minute: 5 });
  const [one, two] = [await createKey(service, { entity: "acme" }), await createKey(service, { entity: "acme" })];
  const { usage } = await service.ok("POST", CHAT, chat(), as(one.key));
  expect(usage.total_tokens).toBeGreaterThan(5);
  const rejected = await service.call("POST", CHAT, chat(), as(two.key));
  expect(errorOf(rejected)).toEqual([
    429,
    "E_RATE_LIMIT",
    expect.stringContaining("at most 5 tokens per minute of the entity 'acme' (`tokens_per_minute`)"),
  ]);
  expect(rejected.headers.get("x-ratelimit-remaining-tokens")).toBe("0");
  // A session of the entity, and the other dialects.
  const { key: session } = await service.ok("POST", "/v1/preview/sessions", { model: "tiny" }, as(one.key));
  expect((await service.call("POST", CHAT, { messages: chat().messages }, as(session))).status).toBe(429);
  const message = { model: "tiny", max_tokens: 2, messages: chat().messages };
  expect(await service.call("POST", "/v1/messages", message, as(one.key))).toMatchObject({
    status: 429,
    body: { error: { type: "rate_limit_error" } },
  });
  // A raised limit applies at once in this process.
  await limitEntity(service, "acme", { tokens_per_minute: 100_000 });
  expect((await service.call("POST", CHAT, chat(), as(two.key))).status).toBe(200);
});

test("running choices are limited while they run, also those of streams; more than the limit in one request answers 403", async () => {
  const gate = deferred<void>();
  const service = await startTestService({ engine: { before: ({ verb }) => (verb === "sampleToken" ? gate.promise : undefined) } });
  const { key } = await createKey(service, { limits: { running_choices: 2 } });
  expect(errorOf(await service.call("POST", CHAT, chat({ n: 3, temperature: 1 }), as(key)))).toEqual([
    403,
    "E_QUOTA",
    expect.stringContaining("at most 2 choices in a request"),
  ]);
  const running = service.call("POST", CHAT, chat({ n: 2, stream: true, temperature: 1 }), as(key));
  await expect.poll(() => service.engine.calls.filter(({ verb }) => verb === "sample").length).toBe(2);
  expect((await service.ok("GET", ENTITIES)).data).toEqual([expect.objectContaining({ id: "local", running_choices: 2 })]);
  expect(errorOf(await service.call("POST", CHAT, chat(), as(key)))).toEqual([
    429,
    "E_RATE_LIMIT",
    expect.stringContaining("got 2 and a request for 1"),
  ]);
  gate.resolve();
  expect((await running).status).toBe(200);
  expect((await service.call("POST", CHAT, chat(), as(key))).status).toBe(200);
});

test("an entity that fills the service leaves each other one its equal part of the capacity", async () => {
  const gate = deferred<void>();
  const service = await startTestService({
    limits: { chat: { maxRunningChoices: 6 } },
    engine: { before: ({ verb }) => (verb === "sampleToken" ? gate.promise : undefined) },
  });
  const [flood, b, c] = await Promise.all(["flood", "b", "c"].map(async (entity) => (await createKey(service, { entity })).key));
  const running: Promise<Answer>[] = [];
  const send = (key: string) => running.push(service.call("POST", CHAT, chat(), as(key)));
  const count = () => service.engine.calls.filter(({ verb }) => verb === "sample").length;
  for (let index = 0; index < 6; index++) send(flood!);
  await expect.poll(count).toBe(6);
  expect(errorOf(await service.call("POST", CHAT, chat(), as(flood!)))[1]).toBe("E_OVERLOADED");
  // Two entities: three each. Three entities: two each.
  for (const [key, part, total] of [
    [b!, 3, 9],
    [c!, 2, 11],
  ] as const) {
    for (let index = 0; index < part; index++) send(key);
    await expect.poll(count).toBe(total);
    expect(errorOf(await service.call("POST", CHAT, chat(), as(key)))[1]).toBe("E_OVERLOADED");
  }
  gate.resolve();
  expect((await Promise.all(running)).map(({ status }) => status)).toEqual(Array(11).fill(200));
});

test("an entity over its unfinished jobs answers 429, and over its stored bytes 403; others are not affected", async () => {
  const gate = deferred<void>();
  const service = await startTestService({ engine: { before: ({ verb }) => (verb === "forwardBackward" ? gate.promise : undefined) } });
  await limitEntity(service, "acme", { queued_jobs: 1, stored_bytes: 2000 });
  const { key } = await createKey(service, { entity: "acme" });
  const other = await createKey(service, { entity: "rival" });
  const modelOf = (owner: string) =>
    service.ok("POST", "/v1/preview/models", { project: "demo", name: "m", base_model: "tiny" }, as(owner));
  const [model, rival] = [await modelOf(key), await modelOf(other.key)];
  await service.ok("POST", RL_JOBS, rlBody(model.id), as(key));
  const second = await service.call("POST", RL_JOBS, rlBody(model.id), as(key));
  expect(errorOf(second)).toEqual([
    429,
    "E_RATE_LIMIT",
    expect.stringContaining("at most 1 unfinished training jobs of the entity 'acme' (`queued_jobs`)"),
  ]);
  expect(second.headers.get("retry-after")).toBe("30");
  await service.ok("POST", RL_JOBS, rlBody(rival.id), as(other.key));
  const version = await service.ok("POST", ARTIFACTS, { project: "demo", name: "data" }, as(key));
  const put = (text: string) => service.call("PUT", `${ARTIFACTS}/${version.id}/files/train.jsonl`, text, as(key));
  expect((await put(chatLines(4).slice(0, 1500))).status).toBe(200);
  const [acme] = (await service.ok("GET", ENTITIES)).data;
  expect(acme).toMatchObject({ id: "acme", queued_jobs: 1, limits: { queued_jobs: 1, stored_bytes: 2000 } });
  const upload = await service.call("PUT", `${ARTIFACTS}/${version.id}/files/more.jsonl`, "x".repeat(2000), as(key));
  expect(errorOf(upload)).toEqual([
    403,
    "E_QUOTA",
    expect.stringContaining("at most 2000 stored bytes of the entity 'acme' (`stored_bytes`)"),
  ]);
  expect((await service.ok("GET", ENTITIES)).data[0].stored_bytes).toBe(acme.stored_bytes);
  gate.resolve();
});

test("limits of keys can be replaced, and only administrators of all entities change those of entities", async () => {
  const service = await startTestService();
  const { id, key } = await createKey(service, { entity: "acme", scopes: ["admin"], limits: { running_choices: 5 } });
  expect((await service.ok("GET", KEYS)).data[0].limits).toEqual({ running_choices: 5 });
  expect(await service.ok("PUT", `${KEYS}/${id}/limits`, { requests_per_minute: 1 })).toMatchObject({
    id,
    limits: { requests_per_minute: 1 },
  });
  await service.ok("POST", CHAT, chat(), as(key));
  expect((await service.call("POST", CHAT, chat(), as(key))).status).toBe(429);
  expect(errorOf(await service.call("PUT", `${ENTITIES}/acme/limits`, {}, as(key)))).toEqual([
    403,
    "E_FORBIDDEN",
    expect.stringContaining("bound to an entity"),
  ]);
  expect(errorOf(await service.call("PUT", `${ENTITIES}/..%2F/limits`, {}))[0]).toBe(422);
  for (const limits of [{ requests_per_minute: 0 }, { tokens_per_minute: 1.5 }, { queued_jobs: 1 }])
    expect((await service.call("PUT", `${KEYS}/${id}/limits`, limits)).status).toBe(422);
});

test("the use of keys is recorded by day, also of cancelled requests, and outlives a restart", async () => {
  const { start } = await restartable();
  const first = await start();
  const { id, key } = await createKey(first, { entity: "acme" });
  const { usage } = await first.ok("POST", CHAT, chat({ n: 2, temperature: 1 }), as(key));
  await first.ok("POST", CHAT, chat());
  await first.service.close();
  const second = await start();
  const [used, ...rest] = (await second.ok("GET", USAGE)).data;
  expect(rest).toEqual([]);
  const day = new Date().toISOString().slice(0, 10);
  expect(used).toEqual({
    day: expect.toBeOneOf([day, used.day]),
    entity: "acme",
    key_id: `key:${id}`,
    requests: 1,
    prompt_tokens: usage.prompt_tokens,
    generated_tokens: usage.completion_tokens,
  });
  await second.ok("POST", CHAT, chat(), as(key));
  await second.service.close();
  const third = await start();
  expect((await third.ok("GET", `${USAGE}?entity=acme&days=1`)).data).toEqual([expect.objectContaining({ requests: 2 })]);
  expect((await third.ok("GET", `${USAGE}?entity=none`)).data).toEqual([]);
});

test("forwarded requests are charged, whole and streamed, and a stream shows token counts only to clients that asked", async () => {
  const bases = await testBase();
  const back = await startTestService({ engine: { bases }, apiKey: "upstream-key-123456" });
  const front = await startTestService({
    engine: { bases: bases.map((base) => ({ ...base, id: "tiny" })) },
    upstream: { url: `${back.service.url}/v1`, apiKey: back.service.apiKey },
  });
  const { key } = await createKey(front, { entity: "acme", limits: { tokens_per_minute: 100 } });
  const left = async () => {
    const { headers } = await front.call("POST", "/tokenize", { model: "tiny", prompt: "a" }, as(key));
    return Number(headers.get("x-ratelimit-remaining-tokens"));
  };
  const { usage } = await front.ok("POST", CHAT, chat({ max_tokens: 6 }), as(key));
  expect(front.engine.calls.filter(({ verb }) => verb === "sample")).toEqual([]);
  expect(Math.abs(100 - usage.total_tokens - (await left()))).toBeLessThan(5);
  for (const n of [1e9, 1.5]) expect((await front.call("POST", CHAT, chat({ n }), as(key))).status).toBe(400);
  const silent = await front.call("POST", CHAT, chat({ max_tokens: 6, stream: true }), as(key));
  expect(silent.body).not.toContain('"usage":{');
  expect(silent.body).toMatch(/data: \[DONE\]\s*$/u);
  const asked = await front.call("POST", CHAT, chat({ max_tokens: 6, stream: true, stream_options: { include_usage: true } }), as(key));
  expect(asked.body).toContain(`"total_tokens":${usage.total_tokens}`);
  expect(Math.abs(100 - 3 * usage.total_tokens - (await left()))).toBeLessThan(10);
});

test("requests that are rejected together are asked to return one after the other", () => {
  const bucket = new TokenBucket(60);
  bucket.take(60);
  const turns = Array.from({ length: 100 }, () => bucket.nextTurnMs());
  expect(turns.slice(0, 4).map((ms) => Math.round(ms / 1000))).toEqual([1, 2, 3, 4]);
  expect(Math.round(turns.at(-1)! / 1000)).toBe(60);
});

test("the client of the OpenAI API waits for a limit as the headers say, and shows them", async () => {
  const service = await startTestService();
  const { key } = await createKey(service, { limits: { requests_per_minute: 60 } });
  const client = new OpenAI({ baseURL: service.service.inferenceUrl, apiKey: key, maxRetries: 5 });
  const ask = () =>
    client.chat.completions.create({ model: "tiny", messages: [{ role: "user", content: "hello" }], max_tokens: 1 }).withResponse();
  const wasLimited = () => service.requests.some(({ status }) => status === 429);
  for (let turn = 0; turn < 200 && !wasLimited(); turn++) {
    const answers = await Promise.all([ask(), ask(), ask()]);
    expect(answers.every(({ data }) => data.choices.length === 1)).toBe(true);
    expect(answers[0].response.headers.get("x-ratelimit-limit-requests")).toBe("60");
  }
  expect(wasLimited()).toBe(true);
});

test("durations are written as the OpenAI API writes them", () => {
  expect([0, 20, 999.5, 1000, 59_001, 360_000].map(durationText)).toEqual(["0ms", "20ms", "1000ms", "1s", "1m0s", "6m0s"]);
});
