/** Names of models, checkpoints and artifacts on the command line, and their lookup on the service. */
import { z } from "zod";
import { HttpError, Model, type ArtifactVersion, type ModelPolicy, type ModelSummary } from "../library/client/index.ts";
import { ArgumentError, NotFoundError } from "../base/errors.ts";
import type { Connected } from "./connected.ts";

/** Max names that an error lists. */
const MAX_LISTED = 10;

/** Name of a model or an artifact, with its project and optionally its entity. */
interface QualifiedName {
  readonly entity?: string | undefined;
  readonly project: string;
  readonly name: string;
}

/** Returns `project/name`. */
export function shortName({ project, name }: { readonly project: string; readonly name: string }): string {
  return `${project}/${name}`;
}

/** Returns the default name of a run: `environment-model`, or the name alone if both are equal. */
export function runName(environment: string, model: string): string {
  return environment === model ? model : `${environment}-${model}`;
}

/** Whether a text is the id of a model or an artifact version. */
export function isId(text: string): boolean {
  return z.uuid().safeParse(text).success;
}

/** Parses `entity/project/name`, `project/name`, or `name` in the project `default`. */
export function parseName(text: string, param: string): QualifiedName {
  const parts = text.split("/");
  const [name, project = "default", entity] = parts.toReversed();
  if (parts.length > 3 || parts.includes("") || name === undefined)
    throw new ArgumentError(`Expected \`${param}\` to be project/name or an id, got '${text}'`, { param });
  return { entity, project, name };
}

/** Returns up to ten names as a list for an error message. */
function listed(names: readonly string[]): string {
  if (names.length === 0) return "none";
  const more = names.length > MAX_LISTED ? ` and ${names.length - MAX_LISTED} more` : "";
  return names.slice(0, MAX_LISTED).join(", ") + more;
}

/**
 * Returns a trainable model by its id or name.
 *
 * @param baseModels - Base models that the caller accepts as well, for the error message.
 * @throws NotFoundError `E_NOT_FOUND` with the existing names.
 */
export async function modelByName({ service, signal }: Connected, text: string, baseModels: readonly string[] = []): Promise<ModelSummary> {
  const models = isId(text)
    ? (await service.models.listTrainable({ signal })).filter(({ id }) => id === text.toLowerCase())
    : await service.models.listTrainable({ ...parseName(text, "model"), signal });
  const [model] = models;
  if (model !== undefined) return model;
  const names = (await service.models.listTrainable({ signal })).map(shortName);
  const bases = baseModels.length === 0 ? "" : `; base models: ${listed(baseModels)}`;
  throw new NotFoundError(`The model "${text}" does not exist on this service, which has ${listed(names)}${bases}`, { param: "model" });
}

/** Parses `model`, `model:step`, `model:stepN` or `model:latest`. A step of undefined stands for the newest checkpoint. */
export function parseCheckpointName(text: string): { readonly model: string; readonly step: number | undefined } {
  const [, model = text, step] = /^(.*?)(?::(?:step(?=\d))?(\d{1,9}|latest))?$/u.exec(text) ?? [];
  return { model, step: step === undefined || step === "latest" ? undefined : Number(step) };
}

/**
 * Returns a model, and the policy of the checkpoint that `text` names.
 *
 * @param text - `model`, `model:step`, `model:stepN` or `model:latest`.
 * @param baseModels - Base models that the caller accepts as well, for the error message.
 * @throws NotFoundError `E_NOT_FOUND` with the existing names, or with the model's steps.
 */
export async function checkpointByName(
  connected: Connected,
  text: string,
  baseModels: readonly string[] = [],
): Promise<{ readonly summary: ModelSummary; readonly model: Model; readonly policy: ModelPolicy }> {
  const { model: name, step } = parseCheckpointName(text);
  const summary = await modelByName(connected, name, baseModels);
  const model = new Model(connected.service, summary);
  return { summary, model, policy: await model.policy(step, { signal: connected.signal }) };
}

/**
 * Runs a request for an object that the user named by its id.
 *
 * @param subject - Noun phrase with the id, such as `job "…"`.
 * @param listCommand - Command that lists the existing ids, such as `jobs list`.
 * @throws NotFoundError `E_NOT_FOUND` with the remedy if the service answers 404; other errors unchanged.
 */
export async function requireExisting<T>(subject: string, listCommand: string, request: () => Promise<T>): Promise<T> {
  try {
    return await request();
  } catch (cause) {
    if (!(cause instanceof HttpError && cause.status === 404)) throw cause;
    throw new NotFoundError(`The ${subject} does not exist on this service. List the existing ones with \`whetstone ${listCommand}\``, {
      cause,
      param: "id",
    });
  }
}

/**
 * Returns an artifact version by its id or address.
 *
 * @param text - UUID, `artifact:///entity/project/name:vN`, `project/name:vN`, or without a version the newest.
 * @throws NotFoundError `E_NOT_FOUND` with the existing versions.
 */
export async function findArtifact({ service, signal }: Connected, text: string): Promise<ArtifactVersion> {
  if (isId(text)) return requireExisting(`artifact "${text}"`, "artifacts list", () => service.artifacts.get(text, { signal }));
  const [, path = "", version] = /^(?:artifact:\/\/\/)?(.*?)(?::v(\d{1,9}))?$/u.exec(text) ?? [];
  const name = parseName(path, "artifact");
  const versions = await service.artifacts.list({ ...name, signal });
  // The service lists the newest version first.
  const artifact = version === undefined ? versions[0] : versions.find((each) => each.version === Number(version));
  if (artifact !== undefined) return service.artifacts.get(artifact.id, { signal });
  const existing = versions.length > 0 ? versions : await service.artifacts.list({ signal });
  throw new NotFoundError(`The artifact "${text}" does not exist on this service, which has ${listed(existing.map(({ url }) => url))}`, {
    param: "artifact",
  });
}
