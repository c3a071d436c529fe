/** Server under test: an address, a key, and helpers for requests. */
import { expect } from "vitest";
import { readEvents } from "../service/chat/support.ts";
import type { ConformanceCase, Field } from "./case.ts";
import { serviceOf, type Address } from "./servers.ts";

/** Milliseconds after which a request counts as hanging. */
const DEADLINE_MS = 60_000;
const CHAT = "/v1/chat/completions";

/** Options of a request. */
export interface SendOptions {
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly signal?: AbortSignal | undefined;
  /** API key; null sends none. @default the server's key */
  readonly key?: string | null | undefined;
  readonly path?: string | undefined;
  readonly method?: string | undefined;
}

/** Error response; `isEvent` if it was an event of a stream. */
export interface Refused {
  readonly status: number;
  readonly message: string;
  readonly type: string;
  readonly param: string | null;
  readonly code: unknown;
  readonly isEvent: boolean;
}

/** Returns the server address from the environment; null if the suite starts its own. */
export function outsideAddress(): Address | null {
  const { CONFORMANCE_BASE_URL: url, CONFORMANCE_API_KEY: apiKey = "" } = process.env;
  return url === undefined || url === "" ? null : { url: url.replace(/\/+$/, ""), apiKey };
}

const HELLO = [{ role: "user", content: "hello" }];

export class Target {
  readonly #address: Address;
  readonly #model: string | undefined;
  /** Top-level fields of all bodies sent so far. */
  readonly sent = new Set<string>();

  constructor(address: Address, model?: string) {
    this.#address = address;
    this.#model = model;
  }

  /** Returns the server for a case; null if an external server does not meet its requirements. */
  static async of({ needs }: ConformanceCase): Promise<Target | null> {
    const outside = outsideAddress();
    if (outside === null) return new Target(await serviceOf(needs?.server ?? "plain"));
    return needs === undefined ? new Target(outside, process.env["CONFORMANCE_MODEL"]) : null;
  }

  /** Sends a body: a string unchanged, an object with default messages and model. */
  async send(body: object | string | undefined, options: SendOptions = {}): Promise<Response> {
    const { headers, key = this.#address.apiKey, path = CHAT, method = "POST" } = options;
    const model = this.#model === undefined ? {} : { model: this.#model };
    const whole = typeof body === "object" && path === CHAT ? { messages: HELLO, ...model, ...body } : body;
    if (typeof whole === "object") for (const field of Object.keys(whole)) this.sent.add(field);
    const signals = [AbortSignal.timeout(DEADLINE_MS), ...(options.signal === undefined ? [] : [options.signal])];
    return fetch(this.#address.url + path, {
      method,
      headers: { "content-type": "application/json", ...(key === null ? {} : { authorization: `Bearer ${key}` }), ...headers },
      ...(whole === undefined ? {} : { body: typeof whole === "string" ? whole : JSON.stringify(whole) }),
      signal: AbortSignal.any(signals),
    });
  }

  /** Returns the response to a request that must succeed. */
  async complete(body: object, options: SendOptions = {}): Promise<any> {
    const response = await this.send(body, options);
    const parsed: any = await response.json();
    expect(response.status, JSON.stringify(parsed).slice(0, 500)).toBe(200);
    return parsed;
  }

  /** Returns the only choice of a request that must succeed. */
  async choice(body: object): Promise<any> {
    return (await this.complete(body)).choices[0];
  }

  /** Returns the text of the only choice. */
  async text(body: object): Promise<string> {
    return (await this.choice(body)).message.content;
  }

  /** Returns the events of a stream that must start. */
  async stream(body: object): Promise<{ readonly chunks: any[]; readonly isDone: boolean }> {
    const response = await this.send({ stream: true, ...body });
    expect(response.status).toBe(200);
    return readEvents(response);
  }

  /** Returns the error of a request that must fail, before the stream or in it. */
  async refused(body: object | string, options: SendOptions = {}): Promise<Refused> {
    const response = await this.send(body, options);
    if (response.status !== 200) return { status: response.status, isEvent: false, ...((await response.json()) as any).error };
    expect(response.headers.get("content-type"), `a refusal of ${JSON.stringify(body).slice(0, 200)}`).toContain("text/event-stream");
    const { chunks, isDone } = await readEvents(response);
    expect(isDone).toBe(true);
    const { error } = chunks[0];
    return { status: error.code, isEvent: true, ...error };
  }

  get url(): string {
    return this.#address.url;
  }

  /** Whether a case has sent the field. */
  hasSent(field: Field): boolean {
    return this.sent.has(field);
  }

  /** Returns the response to a GET of `path`. */
  async get(path: string, options: SendOptions = {}): Promise<Response> {
    return this.send(undefined, { ...options, path, method: "GET" });
  }
}
