/**
 * A second client in a process of its own: `delays-prober.ts <Address as JSON>`, over an IPC channel.
 *
 * Sends `"ready"` after a first completion. Then probes `/health` over a new connection and a completion of one token every 50 ms, and reads one stream that never ends. Answers `"take"`
 * with the longest delays since the last answer, the present ones included.
 */
import { Agent, request } from "undici";
import type { Address } from "./latency.bench.ts";
import type { Delays } from "./delays.bench.ts";

const PROBE_MS = 50;
const { url, apiKey } = JSON.parse(process.argv[2]!) as Address;
const agent = new Agent({ connections: null, headersTimeout: 0, bodyTimeout: 0 });
const headers = { authorization: `Bearer ${apiKey}`, "content-type": "application/json" };

/** Longest of the delays of one kind. */
class Longest {
  #ms = 0;
  #startedMs: number | null = null;

  start(): void {
    this.#startedMs = performance.now();
  }

  end(): void {
    if (this.#startedMs !== null) this.#ms = Math.max(this.#ms, performance.now() - this.#startedMs);
    this.#startedMs = null;
  }

  take(): number {
    const present = this.#startedMs === null ? 0 : performance.now() - this.#startedMs;
    const longest = Math.max(this.#ms, present);
    this.#ms = 0;
    return longest;
  }
}

const health = new Longest();
const gap = new Longest();
const firstToken = new Longest();

/** Repeats a request, with a pause after each answer. */
async function repeat(delay: Longest, send: (turn: number) => Promise<void>): Promise<void> {
  for (let turn = 0; ; turn++) {
    delay.start();
    await send(turn);
    delay.end();
    await new Promise((resolve) => setTimeout(resolve, PROBE_MS));
  }
}

async function probeHealth(): Promise<void> {
  // A new connection for each: the time until it is accepted counts.
  const { body } = await request(`${url}/health`, { dispatcher: agent, reset: true });
  await body.dump();
}

async function complete(turn: number): Promise<void> {
  const prompt = `one token, turn ${turn}`;
  const answer = await request(`${url}/v1/completions`, {
    method: "POST",
    dispatcher: agent,
    headers,
    body: JSON.stringify({ model: "whetstone-tiny", prompt, max_tokens: 1, temperature: 0 }),
  });
  await answer.body.dump();
}

async function stream(): Promise<void> {
  for (let turn = 0; ; turn++) {
    const { body } = await request(`${url}/v1/chat/completions`, {
      method: "POST",
      dispatcher: agent,
      headers,
      body: JSON.stringify({
        messages: [{ role: "user", content: `stream, turn ${turn}` }],
        stream: true,
        return_token_ids: true,
        max_tokens: 400,
        seed: turn,
      }),
    });
    for await (const bytes of body) {
      if (!/"token_ids":\[\d/u.test((bytes as Buffer).toString("latin1"))) continue;
      gap.end();
      gap.start();
    }
    // The wait for a first token is measured by the completions.
    gap.end();
  }
}

// The first requests load the model and compile its graphs.
await complete(-1);
process.send!("ready");
process.on("message", () => {
  process.send!({ healthMs: health.take(), gapMs: gap.take(), firstTokenMs: firstToken.take() } satisfies Delays);
});
process.once("disconnect", () => process.exit());
void Promise.all([repeat(health, probeHealth), repeat(firstToken, complete), stream()]).catch((error: unknown) => {
  console.error(error);
  process.exit(1);
});
