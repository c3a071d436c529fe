import { expect, test } from "vitest";
import { allChoices } from "../../src/base/trajectory/trajectory.ts";
import { trajectory as trajectorySchema } from "../../src/base/schema/index.ts";
import { type Address, BASE, send, startProcess, temporaryDirectory } from "./support.ts";
import type { ChatCompletion } from "../../src/base/schema/index.ts";

const SESSIONS = "/v1/preview/sessions";
const AGENTS = 8;
const TURNS = 5;

/** Sends a chat completion until a service answers it, as SDKs do: with the number of the attempt. */
async function complete(url: string, key: string, messages: readonly object[]): Promise<string> {
  for (let attempt = 0; ; attempt++) {
    try {
      const response = await fetch(`${url}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json", "x-stainless-retry-count": String(attempt) },
        body: JSON.stringify({ model: "any", max_tokens: 12, messages }),
        signal: AbortSignal.timeout(120_000),
      });
      if (response.ok) return ((await response.json()) as ChatCompletion).choices[0]!.message.content!;
      if (response.status !== 503) throw new Error(`${response.status}: ${await response.text()}`);
    } catch (error) {
      // The service is down until it is started again.
      if (!(error instanceof TypeError) || attempt > 1000) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

test("kill -9 during sessions keeps completed turns, and the agents' retries continue", { timeout: 240_000 }, async () => {
  const dataDir = await temporaryDirectory();
  let service: Address & { kill(): Promise<void> } = await startProcess(dataDir);
  const { url } = service;
  const sessions: { id: string; key: string }[] = await Promise.all(
    Array.from({ length: AGENTS }, () => send(service, "POST", SESSIONS, { model: BASE, sampling_defaults: { temperature: 1 } })),
  );
  let answered = 0;
  let reachHalf: () => void = () => {};
  const half = new Promise<void>((resolve) => (reachHalf = resolve));
  const agents = sessions.map(async ({ key }, agent) => {
    const messages: { role: string; content: string }[] = [];
    for (let turn = 0; turn < TURNS; turn++) {
      messages.push({ role: "user", content: `Agent ${agent} says ${turn}` });
      messages.push({ role: "assistant", content: await complete(url, key, [...messages]) });
      if (++answered === (AGENTS * TURNS) / 2) reachHalf();
    }
    return messages.filter(({ role }) => role === "assistant").map(({ content }) => content);
  });
  await half;
  await service.kill();
  service = await startProcess(dataDir, { port: Number(new URL(url).port) });
  const said = await Promise.all(agents);
  for (const [agent, { id }] of sessions.entries()) {
    const { trajectory, requests } = await send(service, "GET", `${SESSIONS}/${id}`);
    const choices = allChoices(trajectorySchema.parse(trajectory));
    expect(requests).toBe(TURNS);
    expect(new Set(choices.map(({ message }) => message.content))).toEqual(new Set(said[agent]));
    expect(choices).toHaveLength(TURNS);
    for (const { token_ids: ids, logprobs } of choices) expect(logprobs?.content).toHaveLength(ids!.length);
  }
});
