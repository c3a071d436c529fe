/** A server as a case sees it: an address, a key, and small helpers around requests. */
import { expect } from "vitest";
import { readEvents } from "../service/chat/support.ts";
import type { ConformanceCase, Field } from "./case.ts";
import { serviceOf, type Address } from "./servers.ts";

/** Milliseconds after which a request counts as hanging. */
const DEADLINE_MS = 60_000;
const CHAT = "/v1/chat/completions";

/** How a request is sent. */
export interface SendOptions {
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly signal?: AbortSignal | undefined;
  /** null sends none. @default that of the server */
  readonly key?: string | null | undefined;
  readonly path?: string | undefined;
  readonly method?: string | undefined;
}

/** An error as it was answered; `isEvent` when it came inside a stream. */
export interface Refused {
  readonly status: number;
  readonly message: string;
  readonly type: string;
  readonly param: string | null;
  readonly code: unknown;
  readonly isEvent: boolean;
}

/** The outside server that the environment names; null when the suite is to start its own. */
export function outsideAddress(): Address | null {
  const { CONFORMANCE_BASE_URL: url, CONFORMANCE_API_KEY: apiKey = "" } = process.env;
  return url === undefined || url === "" ? null : { url: url.replace(/\/+$/, ""), apiKey };
}

const HELLO = [{ role: "user", content: "hello" }];

export class Target {
  readonly #address: Address;
  readonly #model: string | undefined;
  /** Top-level fields of every body that was sent. */
  readonly sent = new Set<string>();

  constructor(address: Address, model?: string) {
    this.#address = address;
    this.#model = model;
  }

  /** The server a case is put to; null when an outside one lacks what the case needs. */
  static async of({ needs }: ConformanceCase): Promise<Target | null> {
    const outside = outsideAddress();
    if (outside === null) return new Target(await serviceOf(needs?.server ?? "plain"));
    return needs === undefined ? new Target(outside, process.env["CONFORMANCE_MODEL"]) : null;
  }

  /** Sends anything; a string as it is, an object with the messages and the model that it lacks. */
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

  /** The answer to a request that must succeed. */
  async complete(body: object, options: SendOptions = {}): Promise<any> {
    const response = await this.send(body, options);
    const parsed: any = await response.json();
    expect(response.status, JSON.stringify(parsed).slice(0, 500)).toBe(200);
    return parsed;
  }

  /** The one choice of a request that must succeed. */
  async choice(body: object): Promise<any> {
    return (await this.complete(body)).choices[0];
  }

  /** The text of that choice. */
  async text(body: object): Promise<string> {
    return (await this.choice(body)).message.content;
  }

  /** The events of a stream that must begin. */
  async stream(body: object): Promise<{ readonly chunks: any[]; readonly isDone: boolean }> {
    const response = await this.send({ stream: true, ...body });
    expect(response.status).toBe(200);
    return readEvents(response);
  }

  /** The error to a request that must fail, before the stream or in it. */
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

  /** Whether a case has sent a field. */
  hasSent(field: Field): boolean {
    return this.sent.has(field);
  }

  /** What `path` answers to a GET. */
  async get(path: string, options: SendOptions = {}): Promise<Response> {
    return this.send(undefined, { ...options, path, method: "GET" });
  }
}
