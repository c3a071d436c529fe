/**
 * Many requests at once against the same requests one after another, over HTTP, on the shipped model.
 *
 *   npm run bench -- concurrency [--requests 64] [--prompt 32] [--tokens 64] [--rounds 3]
 */
import { parseArgs } from "node:util";
import { Agent, request } from "undici";
import type { Address } from "./latency.bench.ts";
import { withHost } from "./latency-service.ts";
import { median, printTable, short, whole } from "./support.ts";

interface Load {
  readonly requests: number;
  readonly prompt: number;
  readonly tokens: number;
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      requests: { type: "string", default: "64" },
      prompt: { type: "string", default: "32" },
      tokens: { type: "string", default: "64" },
      rounds: { type: "string", default: "3" },
    },
  });
  const load: Load = {
    requests: whole("requests", values.requests),
    prompt: whole("prompt", values.prompt),
    tokens: whole("tokens", values.tokens),
  };
  const rounds = whole("rounds", values.rounds);
  console.log(`${load.requests} requests, prompts of about ${load.prompt} tokens, ${load.tokens} new ones, medians of ${rounds} rounds\n`);
  await withHost({ trainerThreads: 1, trainerNiceness: 10 }, async (address) => {
    const agent = new Agent({ connections: null });
    let turn = 0;
    const one = (index: number) => complete(address, agent, load, turn * load.requests + index);
    const all = Array.from({ length: load.requests }, (_, index) => index);
    const sides = {
      "one after another": async () => {
        for (const index of all) await one(index);
      },
      "at once": () => Promise.all(all.map(one)),
    };
    const times = new Map(Object.keys(sides).map((side) => [side, [] as number[]]));
    const prompts = await one(0);
    await sides["at once"]();
    for (let round = 0; round < rounds; round++) {
      for (const [side, work] of Object.entries(sides)) {
        turn++;
        const startMs = performance.now();
        await work();
        times.get(side)!.push(performance.now() - startMs);
      }
    }
    await agent.close();
    const rate = (side: string) => (load.requests * load.tokens * 1000) / median(times.get(side)!);
    const slow = rate("one after another");
    printTable(
      ["", "ms", "tokens/s", "ratio", "prompt tokens"],
      [...times.keys()].map((side) => [
        side,
        short(median(times.get(side)!)),
        short(rate(side)),
        (rate(side) / slow).toFixed(2),
        String(prompts),
      ]),
    );
  });
}

/** Sends one request; resolves with the number of prompt tokens. */
async function complete({ url, apiKey }: Address, agent: Agent, { prompt, tokens }: Load, index: number): Promise<number> {
  const { statusCode, body } = await request(`${url}/v1/chat/completions`, {
    method: "POST",
    dispatcher: agent,
    headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json" },
    body: JSON.stringify({
      // No two prompts are equal; like an agent's they begin with the same words. The template itself takes about ten tokens.
      messages: [{ role: "user", content: `Say it: ${String(index).padStart(6, "0")}`.padEnd(Math.max(1, prompt - 10), "qz") }],
      max_tokens: tokens,
      temperature: 1,
      seed: index,
    }),
  });
  const text = await body.text();
  if (statusCode !== 200) throw new Error(`A request was answered with ${statusCode}: ${text}`);
  const { usage } = JSON.parse(text) as { usage: { prompt_tokens: number; completion_tokens: number } };
  if (usage.completion_tokens !== tokens) throw new Error(`Expected ${tokens} tokens, got ${usage.completion_tokens}`);
  return usage.prompt_tokens;
}
