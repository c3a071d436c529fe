import { join } from "node:path";
import { expect, test } from "vitest";
import { openConnection } from "../../../src/service/store/connection.ts";
import { startTestService, temporaryDirectory } from "../support.ts";
import { ask, CHAT, chunksOf, createSession, heldService, samples, SESSIONS, user } from "./support.ts";
import { onSqlite } from "../../support/postgres.ts";

/** Returns text, token ids and finish reason of a stream by choice. */
function ofChoices(text: string): object {
  const choices: Record<number, { text: string; ids: number[]; end: string | null }> = {};
  for (const { index, delta, token_ids: ids, finish_reason: end } of chunksOf(text).flatMap((chunk) => chunk.choices)) {
    const before = (choices[index] ??= { text: "", ids: [], end: null });
    before.text += delta.content ?? "";
    before.ids.push(...(ids ?? []));
    before.end = end ?? before.end;
  }
  return choices;
}

test("records the requests of a key as one trajectory, with sub-agents as additional histories", async () => {
  const service = await startTestService();
  const session = await createSession(service, { metadata: { scenario_id: "s1" } });
  expect(session).toMatchObject({ status: "open", reward: null, requests: 0, model: "tiny" });
  const first = (await ask(service, session, { messages: [user("a")] })).body;
  const answer = first.choices[0].message;
  expect(first.choices[0]).toMatchObject({ logprobs: null, token_ids: null });
  expect(first.prompt_token_ids).toBeNull();
  const other = await ask(service, session, { messages: [user("sub-agent")] });
  expect(other.status).toBe(200);
  await ask(service, session, { messages: [user("a"), { role: "assistant", content: answer.content }, user("b")] });
  const { trajectory, ...read } = await service.ok("GET", `${SESSIONS}/${session.id}`);
  expect(read).toMatchObject({
    status: "open",
    requests: 3,
    key: null,
    urls: { openai: session.urls.openai, openai_path: expect.stringMatching(/\/sessions\/[0-9a-f-]{36}\/v1$/u) },
  });
  expect(trajectory.messages_and_choices.map((item: any) => item.message?.role ?? item.content)).toEqual([
    "a",
    "assistant",
    "b",
    "assistant",
  ]);
  expect(trajectory.additional_histories).toHaveLength(1);
  expect(trajectory.logs).toEqual([]);
  const [, choice, , next] = trajectory.messages_and_choices;
  expect(choice.logprobs.content).toHaveLength(choice.token_ids.length);
  expect(next.prompt_token_ids.slice(0, choice.prompt_token_ids.length + choice.token_ids.length)).toEqual([
    ...choice.prompt_token_ids,
    ...choice.token_ids,
  ]);
  expect(trajectory).toMatchObject({ metadata: { scenario_id: "s1" }, reward: 0 });
});

test("answers as without a session, whole and as a stream", async () => {
  const service = await startTestService();
  const variants = [{}, { logprobs: true, top_logprobs: 1 }, { return_token_ids: true }, { n: 2 }, { stop: ["x"] }];
  for (const variant of variants) {
    for (const stream of [false, true]) {
      const body = { model: "tiny", max_tokens: 8, messages: [user("hello")], stream, request_id: "r", ...variant };
      const session = await createSession(service);
      const plain = await service.call("POST", CHAT, body);
      const own = await service.call("POST", CHAT, body, { key: session.key });
      expect(own.status).toBe(200);
      if (!stream) expect({ ...own.body, created: 0 }).toEqual({ ...plain.body, created: 0 });
      else expect(ofChoices(own.body)).toEqual(ofChoices(plain.body));
      const { trajectory } = await service.ok("GET", `${SESSIONS}/${session.id}`);
      expect(trajectory.messages_and_choices[1]).toMatchObject({ finish_reason: expect.any(String) });
      expect(trajectory.messages_and_choices[1].logprobs.content.length).toBe(trajectory.messages_and_choices[1].token_ids.length);
    }
  }
});

test("applies model, defaults and overrides of the session", async () => {
  const service = await startTestService();
  const session = await createSession(service, {
    sampling_defaults: { temperature: 0.5, max_completion_tokens: 3 },
    sampling_overrides: { top_p: 0.9 },
  });
  await service.call("POST", CHAT, { model: "gpt-9", messages: [user("a")], top_p: 0.1 }, { key: session.key });
  await service.call(
    "POST",
    CHAT,
    { model: "gpt-9", messages: [user("b")], temperature: 0.25, max_tokens: 2, logprobs: true },
    { key: session.key },
  );
  const { trajectory } = await service.ok("GET", `${SESSIONS}/${session.id}`);
  const [first, second] = [trajectory.messages_and_choices[1], trajectory.additional_histories[0].messages_and_choices[1]];
  expect(first).toMatchObject({ temperature: 0.5, top_p: 0.9 });
  expect(first.token_ids).toHaveLength(3);
  expect(second).toMatchObject({ temperature: 0.25, top_p: 0.9 });
  expect(second.token_ids).toHaveLength(2);
});

test("takes reward, metrics and the end from the session's own key", async () => {
  const service = await startTestService();
  const session = await createSession(service);
  const post = (path: string, body: object, key = session.key) => service.call("POST", `${SESSIONS}/${session.id}/${path}`, body, { key });
  await ask(service, session, { messages: [user("a")] });
  expect((await post("reward", { reward: 0.25 })).body).toMatchObject({ reward: 0.25, status: "open" });
  expect((await post("metrics", { metrics: { steps: 3, solved: false } })).status).toBe(200);
  expect((await post("finish", { reward: 0.75, metrics: { solved: true } })).body).toMatchObject({ reward: 0.75, status: "finished" });
  expect(await ask(service, session, { messages: [user("b")] })).toMatchObject({
    status: 403,
    body: { error: { error_code: "E_FORBIDDEN" } },
  });
  expect((await post("reward", { reward: 1 })).status).toBe(403);
  expect((await post("reward", { reward: 0.5 }, service.service.apiKey)).body.reward).toBe(0.5);
  const { trajectory } = await service.ok("GET", `${SESSIONS}/${session.id}`);
  expect(trajectory).toMatchObject({ reward: 0.5, metrics: { steps: 3, solved: true } });
  expect(await service.ok("DELETE", `${SESSIONS}/${session.id}`)).toEqual({ session_id: session.id, deleted_turns: 1 });
  expect((await ask(service, session, { messages: [user("b")] })).status).toBe(401);
});

test("keeps the turns of concurrent sessions apart, in their order", async () => {
  const service = await startTestService();
  const sessions = await Promise.all(Array.from({ length: 32 }, () => createSession(service)));
  const said = await Promise.all(
    sessions.map(async (session, agent) => {
      const messages: { role: string; content: string }[] = [];
      for (let turn = 0; turn < 5; turn++) {
        messages.push(user(`agent ${agent} turn ${turn}`));
        const { body } = await ask(service, session, { messages, max_tokens: 3, stream: false });
        messages.push({ role: "assistant", content: body.choices[0].message.content });
      }
      return messages;
    }),
  );
  for (const [agent, { id }] of sessions.entries()) {
    const { trajectory, requests } = await service.ok("GET", `${SESSIONS}/${id}`);
    expect(requests).toBe(5);
    expect(trajectory.additional_histories).toEqual([]);
    expect(trajectory.messages_and_choices.map((item: any) => (item.message ?? item).content)).toEqual(
      said[agent]!.map(({ content }) => content),
    );
  }
});

test.each([
  ["whole", { max_tokens: 8 }],
  ["as a stream", { max_tokens: 8, stream: true }],
  ["without a limit of the request", { max_tokens: null }],
  ["with two choices", { max_tokens: 3, n: 2, temperature: 1 }],
])("concurrent requests stay within `max_tokens` of the session together, %s", async (_, fields) => {
  const service = await startTestService();
  const session = await createSession(service, { max_tokens: 10 });
  const answers = await Promise.all(
    Array.from({ length: 32 }, (_, index) => ask(service, session, { messages: [user(`${index}`)], ignore_eos: true, ...fields })),
  );
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200, 403]));
  expect(answers.find(({ status }) => status === 403)?.body.error).toMatchObject({
    message: expect.stringContaining("of its 10 tokens"),
    param: "max_tokens",
  });
  expect(await service.ok("GET", `${SESSIONS}/${session.id}`)).toMatchObject({ tokens: 10 });
});

test("a request over the remaining budget waits until another request has ended, or the session is finished", async () => {
  const { service, gate } = await heldService();
  for (const finishes of [false, true]) {
    const session = await createSession(service, { max_tokens: 20 });
    const answer = (content: string) =>
      ask(service, session, { messages: [user(content)], max_tokens: 12, ignore_eos: true, return_token_ids: true });
    const before = samples(service);
    gate.hold();
    const first = answer("a");
    await expect.poll(() => samples(service)).toBe(before + 1);
    const second = answer("b");
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(samples(service)).toBe(before + 1);
    const finished = finishes ? service.ok("POST", `${SESSIONS}/${session.id}/finish`, {}) : null;
    if (finishes) expect((await second).body.error).toMatchObject({ code: 403, message: expect.stringContaining("finished") });
    gate.release();
    await finished;
    if (finishes) continue;
    expect((await first).body.choices[0].token_ids).toHaveLength(12);
    expect((await second).body.choices[0].token_ids).toHaveLength(8);
  }
});

test("a session whose end cannot be stored still samples its requests", async () => {
  onSqlite();
  const dataDir = await temporaryDirectory();
  await (await startTestService({ dataDir })).service.close();
  const database = await openConnection(join(dataDir, "whetstone.db"), 1000);
  // Writing the end fails until the session has a metric.
  database.exec(
    "create trigger fail before update of finished_at on sessions when new.metrics = '{}' begin select raise(abort, 'broken'); end",
  );
  database.close();
  const { service, gate } = await heldService({ dataDir });
  const session = await createSession(service);
  gate.hold();
  const running = ask(service, session, { messages: [user("a")] });
  await expect.poll(() => samples(service)).toBe(1);
  const finish = (body: object) => service.call("POST", `${SESSIONS}/${session.id}/finish`, body);
  expect((await finish({})).status).toBe(500);
  const next = ask(service, session, { messages: [user("b")] });
  await expect.poll(() => samples(service)).toBe(2);
  gate.release();
  expect((await running).status).toBe(200);
  expect((await next).status).toBe(200);
  expect(await finish({ metrics: { done: true } })).toMatchObject({ status: 200, body: { status: "finished", requests: 2 } });
  expect((await ask(service, session, { messages: [user("c")] })).status).toBe(403);
});

test("a stream that is not read does not delay other requests of its session", async () => {
  const service = await startTestService();
  const session = await createSession(service, { max_tokens: 100 });
  const prompt = ["a", "b", "c"];
  const { status, body } = await service.call(
    "POST",
    "/v1/completions",
    { model: "any", prompt, max_tokens: 40, stream: true, ignore_eos: true },
    { key: session.key },
  );
  expect(status).toBe(200);
  expect(body).toContain("[DONE]");
  expect(await service.ok("GET", `${SESSIONS}/${session.id}`)).toMatchObject({ tokens: 100, requests: 3 });
});
