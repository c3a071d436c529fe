/** Connection of a command to a service, and the models and policies that its arguments name. */
import { Command } from "commander";
import { Model, type ModelPolicy, type Service } from "../library/client/index.ts";
import { NotFoundError } from "../base/errors.ts";
import { connect, type Policy } from "../index.ts";
import { BASE_MODEL_FORMS, parseBaseModel } from "../base/util/base-model.ts";
import { InterruptedError } from "./failure.ts";
import { modelByName, isId, parseCheckpointName, parseName, shortName } from "./names.ts";
import type { OutputOptions } from "./output.ts";
import { onStop } from "./stop-signal.ts";

/** Name of a trained model. */
export interface ModelName {
  /** Owner of the model. @default the key's entity */
  readonly entity?: string | undefined;
  readonly project: string;
  readonly name: string;
}

/** End of the id of a trained model in `GET /v1/models`: `entity/project/name`; the group is the entity. */
const TRAINED_MODEL_ID = /(?:^|\/)([^/]+)\/[^/]+\/[^/]+$/u;

/** Options of every command that connects to a service. */
export interface ConnectionFlags extends OutputOptions {
  readonly dataDir?: string;
  /** Address of the service. @default WHETSTONE_BASE_URL; without it, the embedded service */
  readonly service?: string;
}

/** Adds the option of the data directory to a command that connects to a service. */
export function addDataDir(command: Command): Command {
  return command.option("--data-dir <path>", "data directory of the embedded service (default: WHETSTONE_HOME, or .whetstone)");
}

/** Creates a command that connects to a service. */
export function serviceCommand(name: string, description: string): Command {
  return addDataDir(new Command(name)).description(description);
}

/** Connection of a running command. */
export interface Connected {
  readonly service: Service;
  /** Signal that aborts at the first SIGINT or SIGTERM; a second one ends the process. */
  readonly signal: AbortSignal;
}

/**
 * Runs a command with the configured service, or with the embedded service of `dataDir`, and closes the connection afterwards.
 *
 * @param hint - Continuation of the message that a signal stopped the command, such as `; start it again and it resumes`.
 * @throws InterruptedError if SIGINT or SIGTERM stopped the command.
 */
export async function withService<T>(
  { dataDir, service: baseUrl }: ConnectionFlags,
  run: (connected: Connected) => Promise<T>,
  hint = "",
): Promise<T> {
  const controller = new AbortController();
  const { signal } = controller;
  const removeStopListener = onStop((reason) => controller.abort(new InterruptedError(reason, hint)));
  try {
    const service = await connect({ baseUrl, dataDir, signal });
    try {
      return await run({ service, signal });
    } finally {
      await service.close();
    }
  } catch (error) {
    // An abort reaches the command in many forms, such as the failure of the request that it ended.
    signal.throwIfAborted();
    throw error;
  } finally {
    removeStopListener();
  }
}

/**
 * Returns the model of this name; creates it on the base model `base` if it does not exist.
 *
 * @param loraRank - Rank of the adapter of a new model; undefined for full-parameter training.
 */
export function openModel(
  { service, signal }: Connected,
  { entity, project, name }: ModelName,
  base: string,
  loraRank?: number,
): Promise<Model> {
  const lora = loraRank === undefined ? undefined : { rank: loraRank };
  return service.models.create({ entity, project, name, baseModel: base, returnExisting: true, lora, signal });
}

/**
 * Returns an existing model, and the step that its name on the command line selects.
 *
 * @param text - Name or id of the model, with or without `:step`.
 * @param hint - End of the error message: what to do instead.
 * @throws NotFoundError `E_NOT_FOUND` if the service has no such model; the message lists the models it has.
 */
export async function trainedModel(
  connected: Connected,
  text: string,
  hint = "",
): Promise<{ readonly model: Model; readonly step: number | undefined }> {
  const { model: name, step } = parseCheckpointName(text);
  if (isId(name)) return { model: new Model(connected.service, await modelByName(connected, name)), step };
  const nameParts = parseName(name, "model");
  // A name without an entity matches the model of any entity.
  const suffix = nameParts.entity === undefined ? shortName(nameParts) : name;
  const served = await connected.service.models.list({ signal: connected.signal });
  for (const { id, parent } of served) {
    // Names of trained models end with `entity/project/name`; `owner/name` is a base model.
    const [, entity] = TRAINED_MODEL_ID.exec(id) ?? [];
    // Some services do not report the base model; they ignore the base model in the request for an existing model.
    if (entity !== undefined && `/${id}`.endsWith(`/${suffix}`))
      return { model: await openModel(connected, { ...nameParts, entity }, parent ?? id), step };
  }
  const existing = served.filter(({ parent }) => parent !== null).map(({ id }) => id.split("/").slice(-2).join("/"));
  throw new NotFoundError(
    `The model "${suffix}" does not exist on this service, which has ${existing.length === 0 ? "none yet" : existing.join(", ")}. Train it with \`whetstone train\`${hint}`,
    { param: "model" },
  );
}

/**
 * Returns the policy of an existing model's checkpoint.
 *
 * @param text - Name or id of the model, with or without `:step`; without one, the newest checkpoint.
 * @throws NotFoundError `E_NOT_FOUND` if the service has no such model, or the model has no such checkpoint.
 */
export async function trainedPolicy(connected: Connected, text: string): Promise<ModelPolicy> {
  const { model, step } = await trainedModel(connected, text, ", or name a base model with `--base`");
  return model.policy(step, { signal: connected.signal });
}

/**
 * Returns the name of a base model in requests: an identifier as it is, any other form after the service has fetched and checked the model.
 *
 * @throws NotFoundError `E_NOT_FOUND` for an identifier that the service does not have.
 */
export async function requestedBase({ service, signal }: Connected, base: string): Promise<string> {
  const served = await service.models.list({ signal });
  if (served.some(({ id, parent }) => id === base && parent === null)) return base;
  if (parseBaseModel(base, "base").kind !== "name") return service.addBaseModel(base, { signal });
  const baseModels = served.filter(({ parent }) => parent === null).map(({ id }) => id);
  throw new NotFoundError(
    `The base model "${base}" does not exist on this service, which has ${baseModels.join(", ")}. Other base models: ${BASE_MODEL_FORMS}; a directory here is ./${base}`,
    { param: "base" },
  );
}

/**
 * Returns a base model, untrained, as a policy.
 *
 * @throws NotFoundError `E_NOT_FOUND` for an identifier that the service does not have.
 */
export async function basePolicy(connected: Connected, base: string): Promise<Policy> {
  const id = await requestedBase(connected, base);
  const { completions } = connected.service.chat;
  return {
    id,
    step: null,
    complete: (request, options = {}) => completions.create({ ...request, model: id, stream: false }, { signal: options.signal }),
  };
}
