/** llama.cpp's server, of the Python package xllamacpp; `WHETSTONE_REAL_PYTHON` names the interpreter, by default `python3`. */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";

export const PYTHON = process.env["WHETSTONE_REAL_PYTHON"] ?? "python3";

/** Whether llama.cpp's server and the package gguf are installed. */
export const hasLlamaServer = spawnSync(PYTHON, ["-c", "import xllamacpp, gguf"]).status === 0;

/** Running server. */
export interface LlamaServer {
  /** Returns the ids of a text, with the tokens that the tokenizer adds. */
  readonly tokenize: (text: string) => Promise<number[]>;
  /** Returns the log-probabilities of the tokens after the first. */
  readonly logprobs: (ids: readonly number[]) => Promise<number[]>;
  /** Returns the most likely answer to a user message, of at most `maxTokens` tokens. */
  readonly answer: (prompt: string, maxTokens: number) => Promise<string>;
  readonly close: () => Promise<void>;
}

interface TokenLogprob {
  readonly id: number;
  readonly logprob: number;
}

interface SampledToken extends TokenLogprob {
  readonly top_logprobs: readonly TokenLogprob[];
}

/** Token of SmolLM2 that does not end a generation. */
const ORDINARY_TOKEN = 100;
const MAX_VOCABULARY = 100_000;
/** Larger than any difference of two logits. */
const FORCED = 1e6;

/** Starts a server with a model, optionally with an adapter. */
export async function startLlamaServer(model: string, adapter?: string): Promise<LlamaServer> {
  const files = adapter === undefined ? [model] : [model, adapter];
  const child = spawn(PYTHON, [join(import.meta.dirname, "llama_server.py"), ...files], { stdio: ["pipe", "pipe", "ignore"] });
  const exit = once(child, "exit");
  const [url] = await Promise.race([
    once(createInterface(child.stdout), "line") as Promise<[string]>,
    exit.then(([code]) => Promise.reject(new Error(`llama.cpp ended with ${code} before it served ${files.join(", ")}`))),
  ]);
  async function post<T>(path: string, body: object): Promise<T> {
    const response = await fetch(`${url}${path}`, { method: "POST", body: JSON.stringify(body) });
    if (!response.ok) throw new Error(`llama.cpp answered ${response.status} to ${path}: ${await response.text()}`);
    return (await response.json()) as T;
  }
  async function sample(prompt: readonly number[], token: number, count: number): Promise<SampledToken | undefined> {
    const body = { prompt, n_predict: 1, temperature: 0, n_probs: count, cache_prompt: true, logit_bias: [[token, FORCED]] };
    return (await post<{ completion_probabilities?: SampledToken[] }>("/completion", body)).completion_probabilities?.[0];
  }
  /** The server answers a token that ends a generation without log-probabilities: finds it among all tokens where another one is sampled. */
  async function endLogprob(prompt: readonly number[], token: number): Promise<TokenLogprob | undefined> {
    const sampled = await sample(prompt, ORDINARY_TOKEN, MAX_VOCABULARY);
    return sampled?.top_logprobs.find(({ id }) => id === token);
  }
  return {
    tokenize: async (content) => (await post<{ tokens: number[] }>("/tokenize", { content, add_special: true })).tokens,
    async logprobs(ids) {
      const found: number[] = [];
      // The server returns log-probabilities at sampled tokens only: a bias, which they exclude, makes it sample the next token of the text.
      for (let index = 1; index < ids.length; index++) {
        const token = ids[index]!;
        const sampled = (await sample(ids.slice(0, index), token, 1)) ?? (await endLogprob(ids.slice(0, index), token));
        if (sampled?.id !== token) throw new Error(`Expected token ${token}, llama.cpp sampled ${sampled?.id}`);
        found.push(sampled.logprob);
      }
      return found;
    },
    async answer(prompt, maxTokens) {
      const messages = [{ role: "user", content: prompt }];
      const body = { messages, temperature: 0, max_tokens: maxTokens };
      return (await post<{ choices: [{ message: { content: string } }] }>("/v1/chat/completions", body)).choices[0].message.content;
    },
    async close() {
      child.stdin.end();
      await exit;
    },
  };
}
