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
  await vi.waitFor(() => expect(server.openLeases()).toBe(1));
  for (let turn = 0; turn < 20; turn++) await setImmediate();
  expect(server.openLeases()).toBe(1);
  open();
  const answer = await answering;
  expect(answer.status).toBe(200);
  expect(await answer.json()).toMatchObject({ choices: [{ index: 0 }, { index: 1 }, { index: 2 }] });
  expect(new Set(enter.mock.calls.map(([group]) => group)).size).toBe(1);
});
