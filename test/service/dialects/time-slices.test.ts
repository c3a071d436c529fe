/** Time slices of the calls of one request. */
import { setImmediate } from "node:timers/promises";
import { expect, onTestFinished, test, vi } from "vitest";
import { startChatServer } from "../chat/support.ts";

test("the first call of a request starts at once, further calls wait for time slices of the request's group", async () => {
  const server = await startChatServer();
  onTestFinished(() => server.close());
  let open = () => {};
  const gate = new Promise<void>((resolve) => (open = resolve));
  const enter = vi.spyOn(server.slices, "enter").mockReturnValue(gate);
  const answering = server.post({ prompt: ["one", "two", "three"], max_tokens: 1 }, { path: "/v1/completions" });
  await expect.poll(() => server.openLeases()).toBe(1);
  for (let turn = 0; turn < 20; turn++) await setImmediate();
  expect(server.openLeases()).toBe(1);
  open();
  const answer = await answering;
  expect(answer.status).toBe(200);
  expect(await answer.json()).toMatchObject({ choices: [{ index: 0 }, { index: 1 }, { index: 2 }] });
  expect(new Set(enter.mock.calls.map(([group]) => group)).size).toBe(1);
});

test("a stream ends although requests that arrived later wait for a time slice", async () => {
  let proceed = () => {};
  const started = new Promise<void>((resolve) => (proceed = resolve));
  const server = await startChatServer({
    wrap: (engine) => ({
      ...engine,
      async *sample(...args: Parameters<typeof engine.sample>) {
        for await (const token of engine.sample(...args)) {
          yield token;
          await started;
        }
      },
    }),
  });
  onTestFinished(() => server.close());
  const answer = await server.post({ messages: [{ role: "user", content: "hi" }], max_tokens: 3, ignore_eos: true, stream: true });
  vi.spyOn(server.slices, "enter").mockReturnValue(new Promise<void>(() => {}));
  proceed();
  const text = await answer.text();
  expect(text).toContain('"finish_reason":"length"');
  expect(text).toContain("data: [DONE]");
});
