/** The commands on upstream servers: other services of ours. */
import { expect, test, vi } from "vitest";
import { connect } from "../../src/index.ts";
import { deferred } from "../../src/base/util/deferred.ts";
import { startTestService, testBase } from "../service/support.ts";
import { runHere } from "./run-here.ts";

const KEY = "upstream-key-123456";

test("upstreams lists, drains and resumes servers, and waits for requests in progress", async () => {
  const bases = await testBase();
  const gate = deferred<void>();
  const start = () =>
    startTestService({ engine: { bases, before: ({ verb }) => (verb === "sampleToken" ? gate.promise : undefined) }, apiKey: KEY });
  const urls = [await start(), await start()].map(({ service }) => `${service.url}/v1`) as [string, string];
  const front = await startTestService({
    engine: { bases: bases.map((base) => ({ ...base, id: "tiny" })) },
    upstream: { url: urls, apiKey: KEY },
  });
  vi.stubEnv("WHETSTONE_BASE_URL", front.service.url);
  vi.stubEnv("WHETSTONE_API_KEY", front.service.apiKey);
  const listed = await runHere("upstreams");
  expect(listed.stdout).toMatch(new RegExp(`^URL +STATUS +RUNNING\n${urls[0]} +up +0\n${urls[1]} +up +0\n$`, "u"));

  const chats = [0, 1].map(() =>
    front.ok("POST", "/v1/chat/completions", { model: "tiny", messages: [{ role: "user", content: "hello" }], max_tokens: 2 }),
  );
  await using service = await connect({ baseUrl: front.service.url, apiKey: front.service.apiKey });
  await expect.poll(async () => (await service.upstreams.list()).map(({ running }) => running)).toEqual([1, 1]);
  const drained = runHere("upstreams", "drain", urls[0], "--wait", "--json");
  await expect.poll(async () => (await service.upstreams.list())[0]?.status).toBe("drained");
  expect(await Promise.race([drained.then(() => "ended"), new Promise((resolve) => setTimeout(resolve, 50, "waits"))])).toBe("waits");
  gate.resolve();
  await Promise.all(chats);
  const { code, stdout } = await drained;
  expect([code, JSON.parse(stdout)[0]]).toEqual([0, { url: urls[0], status: "drained", running: 0 }]);
  expect((await runHere("upstreams", "resume", urls[0])).stdout).toMatch(new RegExp(`^${urls[0]} +up +0$`, "mu"));
  const unknown = await runHere("upstreams", "drain", "http://nowhere:1/v1");
  expect([unknown.code, unknown.stderr]).toEqual([1, expect.stringContaining("no upstream server 'http://nowhere:1/v1'")]);
});

test("upstreams says that a service has none", async () => {
  const { service } = await startTestService();
  vi.stubEnv("WHETSTONE_BASE_URL", service.url);
  vi.stubEnv("WHETSTONE_API_KEY", service.apiKey);
  expect((await runHere("upstreams")).stdout).toBe("The service has no upstream servers: `whetstone serve --upstream <url>` adds them\n");
});
