import { expect, test } from "vitest";
import { startTestService } from "../support.ts";
import { ask, chunksOf, createSession, heldService, samples, SESSIONS, user } from "./support.ts";

const RETRY = { "x-stainless-retry-count": "1" };

test("a repeated request is answered from the record, whole and as a stream", async () => {
  const service = await startTestService();
  for (const stream of [false, true]) {
    for (const more of [{}, { logprobs: true, return_token_ids: true, stream_options: stream ? { include_usage: true } : null }]) {
      const session = await createSession(service);
      const body = { messages: [user(`a${String(stream)}`)], stream, temperature: 1, ...more };
      const first = await ask(service, session, body);
      const before = samples(service);
      const again = await ask(service, session, body, RETRY);
      expect(samples(service)).toBe(before);
      if (!stream) expect(again.body).toEqual(first.body);
      else {
        const facts = (text: string) => {
          const chunks = chunksOf(text);
          const choices = chunks.flatMap((chunk) => chunk.choices);
          return {
            id: chunks[0].id,
            text: choices.map(({ delta }) => delta.content ?? "").join(""),
            ids: choices.flatMap(({ token_ids: ids }) => ids ?? []),
            logprobs: choices.flatMap(({ logprobs }) => logprobs?.content ?? []),
            prompt: chunks.flatMap(({ prompt_token_ids: ids }) => ids ?? []),
            end: choices.at(-1).finish_reason,
            usage: chunks.at(-1).usage ?? null,
          };
        };
        expect(facts(again.body)).toEqual(facts(first.body));
      }
      const unmarked = await ask(service, session, body);
      expect(unmarked.status).toBe(200);
      expect(samples(service)).toBe(before + 1);
      expect((await service.ok("GET", `${SESSIONS}/${session.id}`)).requests).toBe(2);
    }
  }
});

test("a request repeated while the first attempt runs joins it, also after the first client has disconnected", async () => {
  const { service, gate } = await heldService();
  for (const stream of [false, true]) {
    for (const disconnects of [false, true]) {
      const session = await createSession(service);
      const body = { messages: [user("a")], stream };
      const before = samples(service);
      gate.hold();
      const client = new AbortController();
      const first = ask(service, session, body, {}, client.signal).catch(() => null);
      await expect.poll(() => samples(service)).toBe(before + 1);
      if (disconnects) client.abort();
      const second = ask(service, session, body, RETRY);
      await new Promise((resolve) => setTimeout(resolve, 50));
      gate.release();
      const [one, two] = [await first, await second];
      expect(two.status).toBe(200);
      if (!disconnects && !stream) expect(two.body).toEqual(one?.body);
      expect(samples(service)).toBe(before + 1);
      const { trajectory, requests } = await service.ok("GET", `${SESSIONS}/${session.id}`);
      expect(requests).toBe(1);
      expect(trajectory.messages_and_choices).toHaveLength(2);
    }
  }
});

test("an answer that no client received is recorded, but only part of the trajectory once it is repeated", async () => {
  const { service, gate } = await heldService();
  const session = await createSession(service);
  const body = { messages: [user("a")] };
  gate.hold();
  const client = new AbortController();
  const first = ask(service, session, body, {}, client.signal).catch(() => null);
  await expect.poll(() => samples(service)).toBe(1);
  client.abort();
  await first;
  const read = () => service.ok("GET", `${SESSIONS}/${session.id}`);
  // The service sees the end of the connection before it answers requests that were sent later.
  for (let request = 0; request < 2; request++) expect((await read()).requests).toBe(0);
  gate.release();
  await expect.poll(async () => (await read()).requests).toBe(1);
  expect((await read()).trajectory.messages_and_choices).toEqual([]);
  expect((await ask(service, session, body, RETRY)).status).toBe(200);
  expect((await read()).trajectory.messages_and_choices).toHaveLength(2);
  expect(samples(service)).toBe(1);
});

test("a repetition of a failed request is sampled", async () => {
  let failures = 1;
  const service = await startTestService({
    engine: {
      before: ({ verb }) => {
        if (verb === "sample" && failures-- > 0) throw new Error("no");
      },
    },
  });
  const session = await createSession(service);
  const body = { messages: [user("a")] };
  expect((await ask(service, session, body)).status).toBe(500);
  expect((await ask(service, session, body, RETRY)).status).toBe(200);
  expect((await service.ok("GET", `${SESSIONS}/${session.id}`)).requests).toBe(1);
});

test("finishing cancels running requests, whole and streamed, and records nothing of them", async () => {
  const { service, gate } = await heldService();
  for (const stream of [false, true]) {
    const session = await createSession(service);
    const before = samples(service);
    gate.hold();
    const running = ask(service, session, { messages: [user("a")], stream });
    await expect.poll(() => samples(service)).toBe(before + 1);
    const finished = service.ok("POST", `${SESSIONS}/${session.id}/finish`, {});
    // Its running requests are cancelled as soon as the session is finished.
    await expect.poll(async () => (await service.ok("GET", `${SESSIONS}/${session.id}`)).status).toBe("finished");
    await new Promise((resolve) => setTimeout(resolve, 20));
    gate.release();
    expect((await finished).status).toBe("finished");
    const answer = await running;
    const error = stream ? chunksOf(answer.body).at(-1).error : answer.body.error;
    expect(error).toMatchObject({ error_code: "E_FORBIDDEN", message: expect.stringContaining("finished") });
    expect((await service.ok("GET", `${SESSIONS}/${session.id}`)).requests).toBe(0);
  }
});
