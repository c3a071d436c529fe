/** Streams that never end: each asks again when its answer is over. */
import { setMaxListeners } from "node:events";
import { Agent, request } from "undici";
import type { Address } from "./latency.bench.ts";

/** Tokens of one answer: long, so that most gaps are between tokens and few between answers. */
const MAX_TOKENS = 400;

/** A chunk with at least one token. */
const WITH_TOKENS = /"token_ids":\[\d/;

export class LiveStreams {
  readonly #stopping = new AbortController();
  readonly #agent = new Agent({ connections: null });
  readonly #running: Promise<void>[];
  readonly #count: number;
  #gaps: number[] = [];

  constructor(address: Address, count: number) {
    this.#count = count;
    setMaxListeners(count, this.#stopping.signal);
    this.#running = Array.from({ length: count }, (_, index) => this.#keepOpen(address, index));
  }

  /** Lets the streams run, at least until something else is done, and returns the gaps that ended meanwhile, in ms; the wait for a first token does not count. */
  async run(ms: number, other?: Promise<unknown>): Promise<number[]> {
    this.#gaps = [];
    const passed = new Promise((resolve) => setTimeout(resolve, ms));
    await Promise.race([Promise.all([passed, other]), ...this.#running]);
    return this.#gaps;
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await Promise.all(this.#running);
    await this.#agent.close();
  }

  async #keepOpen(address: Address, index: number): Promise<void> {
    const { signal } = this.#stopping;
    try {
      for (let turn = 0; ; turn++) await this.#stream(address, index, turn);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  async #stream({ url, apiKey }: Address, index: number, turn: number): Promise<void> {
    const { statusCode, body } = await request(`${url}/v1/chat/completions`, {
      method: "POST",
      dispatcher: this.#agent,
      signal: this.#stopping.signal,
      headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json" },
      body: JSON.stringify({
        messages: [{ role: "user", content: `stream ${index}, turn ${turn}` }],
        stream: true,
        // With ids every token makes a chunk, also a token with withheld text.
        return_token_ids: true,
        // The first answers end at different times, so that later ones do not all begin at once.
        max_tokens: turn === 0 ? Math.ceil((MAX_TOKENS * (index + 1)) / this.#count) : MAX_TOKENS,
        temperature: 1,
        seed: index * 1000 + turn,
      }),
    });
    if (statusCode !== 200) throw new Error(`A stream was answered with ${statusCode}: ${await body.text()}`);
    let lastMs: number | null = null;
    for await (const bytes of body) {
      // Searched, not parsed: parsing would take processor time from the measured service.
      if (!WITH_TOKENS.test((bytes as Buffer).toString("latin1"))) continue;
      const nowMs = performance.now();
      if (lastMs !== null) this.#gaps.push(nowMs - lastMs);
      lastMs = nowMs;
    }
  }
}
