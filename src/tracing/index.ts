/** Traces of rollouts, chat completions, tool calls and training jobs through OpenTelemetry. */
import { ConfigError } from "../base/errors.ts";
import { setTracing } from "../base/util/tracing.ts";
import { openTelemetryTracing, type OpenTelemetryApi } from "./open-telemetry.ts";

/** Options of {@link enableTracing}. */
export interface TracingOptions {
  /**
   * Whether spans have the contents of messages and tool calls (`gen_ai.input.messages`, `gen_ai.output.messages`,
   * `gen_ai.tool.call.arguments`, `gen_ai.tool.call.result`), which may be personal data.
   *
   * @default false
   */
  readonly content?: boolean | undefined;
}

/** Loads the API of OpenTelemetry. @throws ConfigError `E_CONFIG` if it is not installed. */
async function loadApi(): Promise<OpenTelemetryApi> {
  try {
    return await import("@opentelemetry/api");
  } catch (cause) {
    throw new ConfigError("Tracing needs the package @opentelemetry/api, which cannot be loaded. Run `npm install @opentelemetry/api`", {
      cause,
      param: "tracing",
    });
  }
}

/**
 * Switches on the traces of this process: spans by the conventions of OpenTelemetry for generative AI, sent wherever the registered SDK sends
 * them. Call it after the registration of an SDK, and before `connect` or `startService`.
 *
 * @param options - Whether spans have the contents of messages.
 * @throws ConfigError `E_CONFIG` if `@opentelemetry/api` is not installed, or no SDK is registered.
 * @example
 * ```ts
 * import { enableTracing } from "whetstone/tracing";
 *
 * await enableTracing();
 * ```
 */
export async function enableTracing({ content = false }: TracingOptions = {}): Promise<void> {
  const tracing = openTelemetryTracing(await loadApi(), { hasContent: content });
  if (!tracing.hasSdk)
    throw new ConfigError(
      "Expected an OpenTelemetry SDK to be registered before tracing is switched on, found none. Start the program with an SDK, such as `node --import @opentelemetry/auto-instrumentations-node/register`",
      { param: "tracing" },
    );
  setTracing(tracing);
}

/**
 * Switches off the traces of this process. A running service keeps its traces.
 *
 * @example
 * ```ts
 * import { disableTracing } from "whetstone/tracing";
 *
 * disableTracing();
 * ```
 */
export function disableTracing(): void {
  setTracing(null);
}
