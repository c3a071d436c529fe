import { expect, test } from "vitest";
import { startTestService } from "../support.ts";
import { createSession, SESSIONS, user } from "./support.ts";

/** A request of each dialect with the same prompt, and the text of its answer. */
const DIALECTS = [
  ["/v1/chat/completions", (stream: boolean) => ({ messages: [user("hello")], max_tokens: 6, stream })],
  ["/v1/responses", (stream: boolean) => ({ input: "hello", max_output_tokens: 16, stream })],
  ["/v1/messages", (stream: boolean) => ({ messages: [user("hello")], max_tokens: 6, stream })],
  ["/v1/completions", (stream: boolean) => ({ prompt: "hello", max_tokens: 6, stream })],
  ["/inference/v1/generate", () => ({ token_ids: [1, 2, 3], sampling_params: { max_tokens: 6 } })],
] as const;

test("requests of every dialect become turns with token ids and log-probabilities, and repeated ones are not sampled", async () => {
  const service = await startTestService();
  for (const [path, bodyOf] of DIALECTS) {
    for (const stream of path === "/inference/v1/generate" ? [false] : [false, true]) {
      const session = await createSession(service);
      const body = { model: "any", ...bodyOf(stream) };
      const first = await service.call("POST", path, body, { key: null, headers: { "x-api-key": session.key } });
      expect([path, first.status, first.body]).toEqual([path, 200, expect.anything()]);
      const again = await service.call("POST", path, body, {
        key: null,
        headers: { "x-api-key": session.key, "x-stainless-retry-count": "2" },
      });
      expect([path, again.status]).toEqual([path, 200]);
      const { trajectory, requests } = await service.ok("GET", `${SESSIONS}/${session.id}`);
      expect([path, stream, requests]).toEqual([path, stream, 1]);
      const [context, choice] = trajectory.messages_and_choices;
      expect([path, context.role]).toEqual([path, "user"]);
      expect([path, choice.logprobs.content.length]).toEqual([path, choice.token_ids.length]);
      expect(choice.prompt_token_ids.length).toBeGreaterThan(0);
    }
  }
});

test("errors of a session have the format of the dialect", async () => {
  const service = await startTestService();
  const session = await createSession(service);
  await service.ok("POST", `${SESSIONS}/${session.id}/finish`, {});
  const answer = await service.call("POST", "/v1/messages", { model: "any", max_tokens: 4, messages: [user("a")] }, { key: session.key });
  expect(answer).toMatchObject({ status: 403, body: { type: "error", error: { type: "permission_error" } } });
});
