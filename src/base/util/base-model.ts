/**
 * Names of base models: one parser for `base_model` in requests, `baseModel` and `baseModels` in options, and `--base` and `--base-model`
 * on the command line.
 */
import { homedir } from "node:os";
import { isAbsolute, join, resolve } from "node:path";
import { ArgumentError } from "../errors.ts";
import { pathExists } from "./file-system-error.ts";

/** Base model, by the kind of source from which its files are read. */
export type BaseModelSpec =
  /** Identifier that a service or an engine knows. */
  | { readonly kind: "name"; readonly name: string }
  /** Directory in Hugging Face layout, or GGUF file. */
  | { readonly kind: "path"; readonly path: string }
  /** Model on the hub. `revision` is a branch, tag or commit; null = `main`. */
  | { readonly kind: "hub"; readonly repository: string; readonly revision: string | null }
  /** Model in Ollama's local store. */
  | ({ readonly kind: "ollama" } & OllamaModel);

/** Parts of the name of a model in Ollama's store. */
export interface OllamaModel {
  /** Registry. @default registry.ollama.ai */
  readonly registry: string;
  /** Owner in the registry. @default library */
  readonly namespace: string;
  readonly name: string;
  /** Variant. @default latest */
  readonly tag: string;
}

/** Forms of a base model, for error messages. */
export const BASE_MODEL_FORMS = "a directory, a .gguf file, hf:<owner>/<name>[@revision] or ollama:<name>[:tag]";

/** `owner/name` with an optional `@revision`. */
const HUB = /^([\w-][\w.-]{0,95}\/[\w-][\w.-]{0,95})(?:@(\w[\w./-]{0,199}))?$/u;
/** Optional `registry/` and `namespace/`, a name, and an optional `:tag`. */
const OLLAMA = /^(?:(?:([\w-][\w.:-]{0,349})\/)?([\w-][\w.-]{0,79})\/)?([\w-][\w.-]{0,79})(?::(\w[\w.-]{0,79}))?$/u;
/** Relative path, path in the home directory, or name of a GGUF file. */
const PATH = /^(?:\.{1,2}$|\.{1,2}[/\\]|~[/\\])|\.gguf$/iu;
/** Parts that Ollama adds to a name without them. */
const [DEFAULT_REGISTRY, DEFAULT_NAMESPACE, DEFAULT_TAG] = ["registry.ollama.ai", "library", "latest"];

/**
 * Parses the name of a base model.
 *
 * `hf:` and `ollama:` select hub and store. A path is absolute, starts with `./`, `../` or `~/`, or ends with `.gguf`. Any other text is a
 * model on the hub if it has the form `owner/name`, else an identifier.
 *
 * @param text - Name as a user wrote it.
 * @param param - Option or field named in the error.
 * @throws ArgumentError `E_ARGUMENT` for a malformed text after `hf:` or `ollama:`.
 */
export function parseBaseModel(text: string, param: string): BaseModelSpec {
  const [, scheme, nameInScheme = ""] = /^(hf|ollama):(.*)$/su.exec(text) ?? [];
  if (scheme === "ollama") return parseOllama(nameInScheme, param);
  if (scheme === undefined && isPath(text)) return { kind: "path", path: text };
  const hubModel = parseHub(scheme === undefined ? text : nameInScheme);
  if (hubModel !== null) return hubModel;
  if (scheme === undefined) return { kind: "name", name: text };
  throw new ArgumentError(`Expected \`${param}\` to be hf:<owner>/<name> with an optional @revision, got '${truncated(text)}'`, { param });
}

/**
 * Parses the source of a base model that has an identifier of its own, as in `baseModels` and `--base-model`: like {@link parseBaseModel},
 * but every text without `hf:` and `ollama:` is a path.
 */
export function parseBaseSource(text: string, param: string): Exclude<BaseModelSpec, { readonly kind: "name" }> {
  if (!/^(?:hf|ollama):/u.test(text)) return { kind: "path", path: text };
  return parseBaseModel(text, param) as Exclude<BaseModelSpec, { readonly kind: "name" }>;
}

/** Returns the canonical text of a base model: equal texts name the same model. A path is returned unchanged. */
export function formatBaseModel(spec: BaseModelSpec): string {
  switch (spec.kind) {
    case "name":
      return spec.name;
    case "path":
      return spec.path;
    case "hub":
      return spec.revision === null ? spec.repository : `${spec.repository}@${spec.revision}`;
    case "ollama":
      return `ollama:${formatOllama(spec)}`;
  }
}

/** Returns the name of a model in Ollama's store, without the parts that Ollama adds by default. */
function formatOllama({ registry, namespace, name, tag }: OllamaModel): string {
  const nameWithTag = tag === DEFAULT_TAG ? name : `${name}:${tag}`;
  if (registry !== DEFAULT_REGISTRY) return `${registry}/${namespace}/${nameWithTag}`;
  return namespace === DEFAULT_NAMESPACE ? nameWithTag : `${namespace}/${nameWithTag}`;
}

/**
 * Returns the name of a base model with absolute paths, for a service on this machine. `owner/name` is a path if the working
 * directory contains a model at `owner/name`.
 *
 * @throws ArgumentError `E_ARGUMENT` for a malformed name.
 */
export async function toLocalBaseModel(text: string, param: string): Promise<string> {
  const spec = parseBaseModel(text, param);
  if (spec.kind === "path") return absolutePath(spec.path);
  const isDirectory = spec.kind === "hub" && (await pathExists(join(text, "config.json")));
  return isDirectory ? resolve(text) : text;
}

/** Returns the source of a base model, as {@link parseBaseSource} reads it, with an absolute path or in its canonical form. */
export function toLocalBaseSource(text: string, param: string): string {
  const spec = parseBaseSource(text, param);
  if (spec.kind === "path") return absolutePath(spec.path);
  return spec.kind === "hub" ? `hf:${formatBaseModel(spec)}` : formatBaseModel(spec);
}

/** Returns the absolute form of a path. A leading `~/` is the home directory, because shells do not expand it after `=`. */
export function absolutePath(path: string): string {
  return resolve(/^~[/\\]/u.test(path) ? join(homedir(), path.slice(2)) : path);
}

/** Whether a text without a scheme is a path, not an identifier. */
function isPath(text: string): boolean {
  return isAbsolute(text) || PATH.test(text);
}

/** Parses `owner/name[@revision]`; null for any other text. */
function parseHub(text: string): BaseModelSpec | null {
  const [, repository, revision = null] = HUB.exec(text) ?? [];
  return repository === undefined || revision?.includes("..") === true ? null : { kind: "hub", repository, revision };
}

/** Parses the name of a model in Ollama's store, after `ollama:`. @throws ArgumentError `E_ARGUMENT` for a malformed name. */
function parseOllama(text: string, param: string): BaseModelSpec {
  const [, registry = DEFAULT_REGISTRY, namespace = DEFAULT_NAMESPACE, name, tag = DEFAULT_TAG] = OLLAMA.exec(text) ?? [];
  if (name === undefined)
    throw new ArgumentError(
      `Expected \`${param}\` to be ollama:<name> with an optional :tag, such as ollama:smollm2:135m, got '${truncated(`ollama:${text}`)}'`,
      { param },
    );
  return { kind: "ollama", registry, namespace, name, tag };
}

/** Cuts a text for an error message. */
function truncated(text: string): string {
  return text.slice(0, 200);
}
