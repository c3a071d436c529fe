/**
 * Determines which chat completion fields an upstream acts on. Servers that ignore unknown fields would otherwise answer a request with
 * `structured_outputs` or `bad_words` as if the field were absent.
 */
import { z } from "zod";
import { UnavailableError } from "../../base/errors.ts";

/**
 * Request fields of OpenAI's chat completions. Every server that calls itself compatible is expected to act on them.
 *
 * @source OpenAI API reference, "Create chat completion".
 */
const STANDARD_FIELDS: ReadonlySet<string> = new Set([
  ...["messages", "model", "stream", "stream_options", "n", "stop", "seed", "user", "temperature", "top_p", "max_tokens"],
  ...["max_completion_tokens", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs"],
  ...["response_format", "tools", "tool_choice", "parallel_tool_calls", "reasoning_effort"],
]);

/** A value that no field of chat completions accepts: a server that reads the field answers 400 or 422. */
const INVALID_VALUE = [[{}]];
/** Name of a field that no server knows. */
const UNKNOWN_FIELD = "whetstone_unknown_field";
/** Statuses of a server that is loading, saturated or behind a proxy without it. */
const TEMPORARY_STATUSES: ReadonlySet<number> = new Set([408, 429, 502, 503, 504]);

/** Part of an OpenAPI document with the fields of chat completion requests, as vLLM serves it. */
const description = z.looseObject({
  components: z.looseObject({
    schemas: z.looseObject({ ChatCompletionRequest: z.looseObject({ properties: z.record(z.string(), z.unknown()) }) }),
  }),
});

/** Sends one chat completion request and returns its HTTP status. Rejects when the server cannot be reached. */
export type Ask = (body: Readonly<Record<string, unknown>>) => Promise<number>;

/** Reads the fields of `ChatCompletionRequest` from a server's OpenAPI document; null for anything else. */
export function describedFields(openApi: unknown): ReadonlySet<string> | null {
  const described = description.safeParse(openApi);
  return described.success ? new Set(Object.keys(described.data.components.schemas.ChatCompletionRequest.properties)) : null;
}

/** Options of {@link UpstreamCapabilities}. */
export interface CapabilitiesOptions {
  /** Fields in the server's OpenAPI document; null if the server has no such document. */
  readonly described: ReadonlySet<string> | null;
  readonly ask: Ask;
  /** Fields known to be supported, which are not probed. @default none */
  readonly supportedFields?: readonly string[] | undefined;
  /** Fields known to have no effect. @default none */
  readonly refusedFields?: readonly string[] | undefined;
}

/** Fields that an upstream acts on, from its OpenAPI document, or else from OpenAI's list and one probe per additional field. */
export class UpstreamCapabilities {
  readonly #options: CapabilitiesOptions;
  /** Results of {@link supports} for fields that were probed, or are being probed. */
  readonly #probes = new Map<string, Promise<boolean>>();
  /** Result of `#probeUnknown`; undefined until needed, and after an inconclusive probe. */
  #rejectsUnknown: Promise<boolean | null> | undefined;

  constructor(options: CapabilitiesOptions) {
    this.#options = options;
  }

  /** Whether the server's OpenAPI document names a field; null if the server has no such document. */
  describes(field: string): boolean | null {
    return this.#options.described?.has(field) ?? null;
  }

  /** Whether the service's settings declare a field to have no effect on the server. */
  refuses(field: string): boolean {
    return this.#options.refusedFields?.includes(field) === true;
  }

  /**
   * Whether the server acts on a field. Without an OpenAPI document, a field outside OpenAI's list is probed once: a request with an
   * invalid value for it, limited to one token. A server that answers 400 or 422 reads the field; one that answers 200 ignores it.
   * Any other lasting outcome counts as unsupported for this call only.
   *
   * @param model - Name of a model that the server has.
   * @throws UnavailableError `E_UNAVAILABLE` if the server does not answer a probe, or answers that it is overloaded.
   */
  async supports(field: string, model: string): Promise<boolean> {
    const { supportedFields } = this.#options;
    if (this.refuses(field)) return false;
    if (supportedFields?.includes(field) === true) return true;
    const described = this.describes(field);
    if (described !== null) return described;
    if (STANDARD_FIELDS.has(field)) return true;
    const earlierProbe = this.#probes.get(field);
    if (earlierProbe !== undefined) return earlierProbe;
    const result = this.#probe(field, model).then(
      (isSupported) => {
        // An inconclusive probe is repeated at the next call.
        if (isSupported === null) this.#probes.delete(field);
        return isSupported === true;
      },
      (error: unknown) => {
        this.#probes.delete(field);
        throw error;
      },
    );
    this.#probes.set(field, result);
    return result;
  }

  /** Probes a field; null if the probe was inconclusive. */
  async #probe(field: string, model: string): Promise<boolean | null> {
    this.#rejectsUnknown ??= this.#probeUnknown(model);
    const rejectsUnknown = await this.#rejectsUnknown.catch((error: unknown) => {
      this.#rejectsUnknown = undefined;
      throw error;
    });
    if (rejectsUnknown === null) this.#rejectsUnknown = undefined;
    // A server that rejects unknown fields reports an unsupported field to the client itself.
    if (rejectsUnknown !== false) return rejectsUnknown;
    return this.#rejects(model, { [field]: INVALID_VALUE });
  }

  /** Whether the server rejects unknown fields; null if it does not answer a plain request either. */
  async #probeUnknown(model: string): Promise<boolean | null> {
    const rejectsUnknownField = await this.#rejects(model, { [UNKNOWN_FIELD]: INVALID_VALUE });
    if (rejectsUnknownField !== true) return rejectsUnknownField;
    const rejectsPlainRequest = await this.#rejects(model, {});
    return rejectsPlainRequest === false ? true : null;
  }

  /** Whether the server rejects a request: true for 400 and 422, false for 200, null for any other lasting outcome. */
  async #rejects(model: string, fields: Readonly<Record<string, unknown>>): Promise<boolean | null> {
    const status = await this.#options
      .ask({ model, messages: [{ role: "user", content: "Hi" }], max_tokens: 1, ...fields })
      .catch((cause: unknown) => unanswered("no answer", cause));
    if (TEMPORARY_STATUSES.has(status)) unanswered(`status ${status}`);
    if (status === 400 || status === 422) return true;
    return status === 200 ? false : null;
  }
}

/** @throws UnavailableError `E_UNAVAILABLE` for a probe without a result. */
function unanswered(got: string, cause?: unknown): never {
  throw new UnavailableError(
    `Expected the server that samples this model to answer which fields it supports, got ${got}; send the request again`,
    { cause },
  );
}
