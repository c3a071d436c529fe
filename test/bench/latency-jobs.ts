/** Training jobs sent one after another through the interface, of the size that the quickstart sends. */
import type { Address } from "./latency.bench.ts";

type Kind = "sft" | "rl";
/** Answers of the service are read as they come; a wrong shape fails the run. */
type Json = any;

const SFT_EXAMPLES = 640;
const SFT_BATCH = 32;
const RL_PROMPTS = 16;
const RL_GROUP = 16;
const LETTERS = "abcdefghijklmnopqrstuvwxyz";

/** Jobs being sent until they are stopped. */
export interface Feeding {
  /** Waits for the job that is running; returns tokens of trained rows per second of wall time, from the first job's POST to the last one's end. */
  stop(): Promise<number>;
}

export class JobFeeder {
  readonly #address: Address;
  readonly #modelId: string;
  readonly #artifactUrl: string;
  readonly #groups: readonly Json[];

  private constructor(
    address: Address,
    made: { readonly modelId: string; readonly artifactUrl: string; readonly groups: readonly Json[] },
  ) {
    this.#address = address;
    this.#modelId = made.modelId;
    this.#artifactUrl = made.artifactUrl;
    this.#groups = made.groups;
  }

  static async create(address: Address): Promise<JobFeeder> {
    const { id: modelId } = await send(address, "POST", "/v1/preview/models", {
      project: "bench",
      name: "latency",
      base_model: "whetstone-tiny",
    });
    const version = await send(address, "POST", "/v1/preview/artifacts", { project: "bench", name: "examples" });
    await send(address, "PUT", `/v1/preview/artifacts/${version.id}/files/train.jsonl`, examples());
    const { url } = await send(address, "POST", `/v1/preview/artifacts/${version.id}/commit`);
    const groups = await Promise.all(Array.from({ length: RL_PROMPTS }, (_, index) => rollOut(address, index)));
    return new JobFeeder(address, { modelId, artifactUrl: url, groups });
  }

  /** Runs one job to its end; `onTokens` hears of the tokens of each optimizer step. */
  async runOne(kind: Kind, onTokens: (tokens: number) => void = () => {}): Promise<void> {
    const body =
      kind === "sft"
        ? { training_data_url: this.#artifactUrl, config: { batch_size: SFT_BATCH, learning_rate: 1e-5 } }
        : { trajectory_groups: this.#groups, experimental_config: { learning_rate: 1e-6 } };
    const path = kind === "sft" ? "/v1/preview/sft-training-jobs" : "/v1/preview/training-jobs";
    await this.#runJob(path, body, onTokens);
  }

  async #runJob(path: string, body: object, onTokens: (tokens: number) => void): Promise<void> {
    const { id } = await send(this.#address, "POST", path, { model_id: this.#modelId, ...body });
    for (let after = ""; ;) {
      const { data, last_id: last } = await send(this.#address, "GET", `/v1/preview/training-jobs/${id}/events?limit=100&wait=10${after}`);
      if (last !== null) after = `&after=${last}`;
      for (const event of data) {
        if (event.type === "gradient_step") onTokens(event.data.num_tokens);
        if (event.type === "training_ended") return;
        if (event.type === "training_failed") throw new Error(`A job failed: ${event.data.error_message}`);
      }
    }
  }

  /** Runs one RL step of a training run: rollouts of the current model, then a job that trains on them. */
  async runStep(step: number): Promise<void> {
    const indices = Array.from({ length: RL_PROMPTS }, (_, at) => step * RL_PROMPTS + at);
    const groups = await Promise.all(indices.map((index) => rollOut(this.#address, index, this.#modelId)));
    await this.#runJob("/v1/preview/training-jobs", { trajectory_groups: groups, experimental_config: { learning_rate: 1e-6 } }, () => {});
  }

  /** Keeps the trainer busy with jobs of one kind. */
  start(kind: Kind): Feeding {
    const startMs = performance.now();
    let isStopped = false;
    let tokens = 0;
    const running = (async () => {
      while (!isStopped) await this.runOne(kind, (count) => (tokens += count));
    })();
    return {
      async stop() {
        isStopped = true;
        await running;
        return (tokens * 1000) / (performance.now() - startMs);
      },
    };
  }
}

async function send({ url, apiKey }: Address, method: string, path: string, body?: object | string): Promise<Json> {
  const response = await fetch(url + path, {
    method,
    headers: { authorization: `Bearer ${apiKey}`, ...(typeof body === "object" ? { "content-type": "application/json" } : {}) },
    ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
  });
  if (!response.ok) throw new Error(`${method} ${path} was answered with ${response.status}: ${await response.text()}`);
  return response.json();
}

const word = (index: number) =>
  Array.from({ length: 8 }, (_, at) => LETTERS[(index * 7 + at * (index % 11) + at * at) % LETTERS.length]).join("");

function examples(): string {
  return Array.from({ length: SFT_EXAMPLES }, (_, index) => {
    const messages = [
      { role: "user", content: `Reverse ${word(index)}.` },
      { role: "assistant", content: [...word(index)].toReversed().join("") },
    ];
    return JSON.stringify({ messages });
  }).join("\n");
}

/** A group of real rollouts; every other one is rewarded, so that there is something to learn. */
async function rollOut(address: Address, index: number, model?: string): Promise<Json> {
  const messages = [{ role: "user", content: `Reverse ${word(index)}.` }];
  const completion = await send(address, "POST", "/v1/chat/completions", {
    ...(model === undefined ? {} : { model }),
    messages,
    n: RL_GROUP,
    max_tokens: 14,
    logprobs: true,
    return_token_ids: true,
    seed: index,
  });
  const trajectories = completion.choices.map((choice: Json, at: number) => ({
    messages_and_choices: [...messages, { ...choice, prompt_token_ids: choice.prompt_token_ids ?? completion.prompt_token_ids }],
    reward: at % 2,
  }));
  return { trajectories };
}
