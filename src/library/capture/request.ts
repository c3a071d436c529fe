/** Recognition of sampling requests, and the fields that training needs in them. */
import type { DialectName, Members } from "../../dialects/index.ts";
import type { JsonObject } from "../../base/schema/index.ts";
import { parseJson } from "../../base/util/values.ts";

/** Request that a client is about to send. */
export interface SamplingCall {
  readonly dialect: DialectName;
  readonly url: URL;
  readonly model: string;
  /** Body as the client wrote it, parsed. */
  readonly body: Members;
}

/** Ends of the paths of the routes that sample. */
const PATHS: readonly (readonly [RegExp, DialectName])[] = [
  [/\/chat\/completions\/?$/u, "chat"],
  [/\/completions\/?$/u, "completions"],
  [/\/responses\/?$/u, "responses"],
  [/\/messages\/?$/u, "messages"],
  [/\/inference\/v1\/generate\/?$/u, "generate"],
];

/** Returns the dialect in which a request can sample, judged by method and URL; undefined for any other request. */
export function dialectOf(method: string, url: string): DialectName | undefined {
  if (method.toUpperCase() !== "POST" || !URL.canParse(url)) return undefined;
  const { pathname } = new URL(url);
  return PATHS.find(([path]) => path.test(pathname))?.[1];
}

/** Parses a request from the text of its body; null for any other body. */
export function readSamplingCall(dialect: DialectName, url: string, text: string): SamplingCall | null {
  const body = parseJson(text);
  if (typeof body !== "object" || body === null || !("model" in body) || typeof body.model !== "string") return null;
  return { dialect, url: new URL(url), model: body.model, body: { ...body } };
}

/** Fields that are added to recorded requests. */
export interface AddedFields {
  /** Template variables that a request does not set. A prompt of text or token ids has no template. */
  readonly chatTemplateKwargs?: Readonly<JsonObject> | undefined;
  /** Whether to request token ids and log-probabilities. */
  readonly tokens: boolean;
}

/** Returns the body as it is sent, with the added fields. */
export function recordedBody(call: SamplingCall, { chatTemplateKwargs, tokens }: AddedFields): Members {
  const body = chatTemplateKwargs === undefined ? call.body : withKwargs(call, chatTemplateKwargs);
  return tokens ? withTokens({ ...call, body }) : body;
}

function withKwargs({ dialect, body }: SamplingCall, chatTemplateKwargs: Readonly<JsonObject>): Members {
  if (dialect === "completions" || dialect === "generate") return body;
  const own = body["chat_template_kwargs"] ?? {};
  if (typeof own !== "object" || Array.isArray(own)) return body;
  return { ...body, chat_template_kwargs: { ...chatTemplateKwargs, ...own } };
}

function withTokens({ dialect, body }: SamplingCall): Members {
  switch (dialect) {
    case "completions": {
      // An echoed prompt is not recorded; its log-probabilities would be computed, and are not available in a stream.
      if (body["echo"] === true) return body;
      return { ...body, logprobs: body["logprobs"] ?? 0, return_token_ids: true };
    }
    case "generate": {
      const { logprobs = 0, ...sampling } = (body["sampling_params"] ?? {}) as Members;
      return { ...body, sampling_params: { ...sampling, logprobs: logprobs ?? 0 } };
    }
    default:
      return { ...body, logprobs: true, return_token_ids: true };
  }
}

/** Returns the names in `chatTemplateKwargs` that a request with a template does not set. */
export function missingKwargs({ dialect, body }: SamplingCall, chatTemplateKwargs: Readonly<JsonObject> = {}): string[] {
  if (dialect === "completions" || dialect === "generate") return [];
  return Object.keys(chatTemplateKwargs).filter((name) => !Object.hasOwn(Object(body["chat_template_kwargs"]), name));
}
