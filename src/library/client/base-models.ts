/** Base models that a script names: resolution of their paths for the service, and adding them to it. */
import { isAbsolute } from "node:path";
import { ArgumentError } from "../../base/errors.ts";
import { addBaseModelRequest, baseModelName } from "../../base/schema/index.ts";
import { parseBaseModel, toLocalBaseModel, toLocalBaseSource } from "../../base/util/base-model.ts";
import { isOnThisMachine } from "./address.ts";
import { callJson, LONG_CALL_MS, type Api, type CallOptions } from "./api.ts";
import { optionNames, withOptionNames } from "./option-names.ts";
import { optionsToWire, parseResponse } from "./options.ts";

/** Options of `service.addBaseModel`. */
export interface AddBaseModelOptions extends CallOptions {
  /** Identifier of the base model until the service stops. @default the source itself */
  readonly id?: string | undefined;
}

/**
 * Creates {@link Api.toBaseModel} for the service at `baseUrl`. On this machine it makes relative paths absolute; for another machine it
 * rejects them.
 */
export function baseModelsOf(baseUrl: string): Api["toBaseModel"] {
  if (isOnThisMachine(baseUrl)) return toLocalBaseModel;
  return (text, param) => {
    const spec = parseBaseModel(text, param);
    if (spec.kind !== "path" || isAbsolute(spec.path)) return Promise.resolve(text);
    return Promise.reject(
      new ArgumentError(
        `Expected \`${param}\` to be an absolute path on the machine of the service at ${baseUrl}, got '${text}', a relative path of this machine`,
        { param },
      ),
    );
  };
}

/**
 * Returns a copy of `baseModels` (sources by identifier) in which every path is absolute.
 *
 * @throws ArgumentError `E_ARGUMENT` for a malformed source.
 */
export function localSources(baseModels: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(baseModels).map(([id, source]) => [id, toLocalBaseSource(source, "baseModels")]));
}

/** Adds a base model to a service. @returns the name for `model` and `baseModel`. */
export async function addBaseModel(api: Api, source: string, { id, signal, timeoutMs }: AddBaseModelOptions): Promise<string> {
  const json = optionsToWire(addBaseModelRequest, { source: await api.toBaseModel(source, "source"), id });
  // Repeating the request adds nothing. The service may first have to download the base model.
  const request = { json, retry: "idempotent", signal, timeoutMs, headersTimeoutMs: LONG_CALL_MS } as const;
  const answer = await withOptionNames(optionNames(addBaseModelRequest), () => callJson(api, "POST", "/v1/preview/base-models", request));
  return parseResponse(baseModelName, answer, "name of a base model").id;
}
