/** A service with several upstream servers: other services of ours. */
import { expect, test } from "vitest";
import type { RunningService } from "../../src/service/index.ts";
import type { ScriptedCall } from "../../src/testing/index.ts";
import { UpstreamPool } from "../../src/engine/upstream/pool.ts";
import type { Upstream } from "../../src/engine/upstream/upstream.ts";
import { deferred } from "../../src/base/util/deferred.ts";
import { startTestService, testBase, type TestService } from "./support.ts";

const CHAT = "/v1/chat/completions";
const UPSTREAMS = "/v1/preview/upstreams";
const chat = (more: object = {}) => ({ model: "tiny", messages: [{ role: "user", content: "hello" }], max_tokens: 2, ...more });
const KEY = "upstream-key-123456";

const urlOf = ({ url }: RunningService) => `${url}/v1`;
const sampled = ({ engine }: TestService) => engine.calls.filter(({ verb }) => verb === "sample").length;

/** Starts two services, and one that forwards to both. */
async function startPool(before?: (call: ScriptedCall) => void | Promise<void>) {
  const bases = await testBase();
  const start = () => startTestService({ engine: { bases, before }, apiKey: KEY });
  const servers = [await start(), await start()] as const;
  const front = await startTestService({
    engine: { bases: bases.map((base) => ({ ...base, id: "tiny" })) },
    upstream: { url: servers.map(({ service }) => urlOf(service)), apiKey: KEY },
  });
  return { servers, front };
}

test("requests go to the server with the fewest, and a session stays on one server", async () => {
  const gate = deferred<void>();
  const { servers, front } = await startPool(({ verb }) => (verb === "sampleToken" ? gate.promise : undefined));
  const running = Array.from({ length: 6 }, () => front.ok("POST", CHAT, chat()));
  await expect.poll(() => servers.map(sampled)).toEqual([3, 3]);
  expect((await front.ok("GET", UPSTREAMS)).data).toEqual(
    servers.map(({ service }) => ({ url: urlOf(service), status: "up", running: 3 })),
  );
  gate.resolve();
  await Promise.all(running);
  expect(sampled(front)).toBe(0);
  const places: number[] = [];
  for (let index = 0; index < 8; index++) {
    const { key } = await front.ok("POST", "/v1/preview/sessions", { model: "tiny" });
    const before = servers.map(sampled);
    for (let turn = 0; turn < 3; turn++)
      await front.ok("POST", CHAT, { messages: [{ role: "user", content: `turn ${turn}` }], max_tokens: 2 }, { key });
    const added = servers.map((server, at) => sampled(server) - before[at]!);
    expect(added.toSorted((a, b) => a - b)).toEqual([0, 3]);
    places.push(added.indexOf(3));
  }
  expect(new Set(places).size).toBe(2);
});

test("another server answers for one that has ended, until it is back", async () => {
  const { servers, front } = await startPool();
  const [first, second] = servers;
  await first.service.close();
  for (let turn = 0; turn < 3; turn++) await front.ok("POST", CHAT, chat({ stream: turn === 1 }));
  expect(sampled(second)).toBe(3);
  expect((await front.ok("GET", UPSTREAMS)).data.map(({ status }: { status: string }) => status)).toEqual(["down", "up"]);
  await second.service.close();
  expect(await front.call("POST", CHAT, chat())).toMatchObject({ status: 503, body: { error: { error_code: "E_OVERLOADED" } } });
  expect((await front.call("POST", CHAT, chat())).headers.get("retry-after")).toBe("1");
});

test("a server without room is replaced by one with room", async () => {
  const bases = await testBase();
  const gate = deferred<void>();
  const [full, free] = [
    await startTestService({
      engine: { bases, before: ({ verb }) => (verb === "sampleToken" ? gate.promise : undefined) },
      apiKey: KEY,
      limits: { chat: { maxRunningChoices: 1 } },
    }),
    await startTestService({ engine: { bases, before: ({ verb }) => (verb === "sampleToken" ? gate.promise : undefined) }, apiKey: KEY }),
  ];
  const front = await startTestService({
    engine: { bases: bases.map((base) => ({ ...base, id: "tiny" })) },
    upstream: { url: [full, free].map(({ service }) => urlOf(service)), apiKey: KEY },
  });
  const running = Array.from({ length: 4 }, () => front.call("POST", CHAT, chat()));
  await expect.poll(() => [full, free].map(sampled)).toEqual([1, 3]);
  gate.resolve();
  expect((await Promise.all(running)).map(({ status }) => status)).toEqual([200, 200, 200, 200]);
});

test("a drained server gets no further requests and completes those in progress", async () => {
  const gate = deferred<void>();
  const { servers, front } = await startPool(({ verb }) => (verb === "sampleToken" ? gate.promise : undefined));
  const running = [front.ok("POST", CHAT, chat()), front.ok("POST", CHAT, chat())];
  await expect.poll(() => servers.map(sampled)).toEqual([1, 1]);
  const url = urlOf(servers[0].service);
  expect((await front.ok("PUT", UPSTREAMS, { url, drained: true })).data[0]).toEqual({ url, status: "drained", running: 1 });
  running.push(front.ok("POST", CHAT, chat()), front.ok("POST", CHAT, chat()));
  await expect.poll(() => servers.map(sampled)).toEqual([1, 3]);
  gate.resolve();
  await Promise.all(running);
  expect((await front.ok("GET", UPSTREAMS)).data[0].running).toBe(0);
  expect(await front.call("PUT", UPSTREAMS, { url: "http://127.0.0.1:1", drained: true })).toMatchObject({
    status: 404,
    body: { error: { param: "url" } },
  });
  await front.ok("PUT", UPSTREAMS, { url: urlOf(servers[1].service), drained: true });
  expect((await front.call("POST", CHAT, chat())).body.error.message).toContain("All servers that sample this model are drained");
  await front.ok("PUT", UPSTREAMS, { url, drained: false });
  await front.ok("POST", CHAT, chat());
  expect(servers.map(sampled)).toEqual([2, 3]);
});

test("servers without a common base model, and one address twice, are rejected", async () => {
  const [one, other] = [await startTestService({ apiKey: KEY }), await startTestService({ apiKey: KEY })];
  const withModel = (url: string, id: string) => ({ url, baseModels: new Map([[id, id]]), options: { url } }) as unknown as Upstream;
  expect(() => new UpstreamPool([withModel("a", "x"), withModel("b", "y")], () => {})).toThrow("without a common one");
  const start = (urls: string[]) => startTestService({ upstream: { url: urls, apiKey: KEY } });
  await expect(start([urlOf(one.service), urlOf(one.service)])).rejects.toThrow("got one twice");
  await expect(start([urlOf(one.service), "http://127.0.0.1:1"])).rejects.toThrow("cannot be reached");
  await expect(start([])).rejects.toThrow("at least one upstream");
  await other.service.close();
});
