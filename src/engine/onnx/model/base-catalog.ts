/** Base models of an engine: known by an identifier, or named by a path, a model of the hub, or a model in Ollama's store. */
import { isAbsolute, parse } from "node:path";
import { ConfigError, ConflictError, NotFoundError } from "../../../base/errors.ts";
import {
  absolutePath,
  BASE_MODEL_FORMS,
  formatBaseModel,
  parseBaseModel,
  parseBaseSource,
  type BaseModelSpec,
} from "../../../base/util/base-model.ts";
import { allowedDirectory, checkDirectories } from "./base-directories.ts";
import type { BaseSource } from "./config.ts";
import { findOllamaModel } from "./ollama-store.ts";

/** Options of {@link BaseCatalog}. */
export interface BaseCatalogOptions {
  /** Sources by identifier: a path, `hf:<owner>/<name>` or `ollama:<name>`. */
  readonly baseModels: Readonly<Record<string, string>>;
  /** Directories that a base model named by path must lie in; `"any"` = all paths. @default [] */
  readonly allowedRoots?: readonly string[] | "any" | undefined;
  /** Returns the directory of a model on the hub, or of another name; null if the model does not exist. @default always null */
  readonly resolveBase?: ((base: string) => Promise<string | null>) | undefined;
}

/** Base models that an engine can load. */
export class BaseCatalog {
  /** Sources of the known base models by identifier. */
  readonly #known = new Map<string, BaseModelSpec>();
  readonly #allowedRoots: readonly string[] | "any";
  readonly #resolveBase: (base: string) => Promise<string | null>;

  /** @throws ConfigError `E_CONFIG` for a malformed source. */
  constructor({ baseModels, allowedRoots = [], resolveBase = () => Promise.resolve(null) }: BaseCatalogOptions) {
    for (const [id, source] of Object.entries(baseModels)) this.#known.set(id, parseOption(source));
    this.#allowedRoots = allowedRoots;
    this.#resolveBase = resolveBase;
  }

  /** Identifiers of the known base models. */
  get ids(): string[] {
    return [...this.#known.keys()];
  }

  /**
   * Checks that the paths of the known base models exist.
   *
   * @throws ConfigError `E_CONFIG` for the first that does not.
   */
  async check(): Promise<void> {
    const paths = [...this.#known].flatMap(([id, spec]) => (spec.kind === "path" ? [[id, absolutePath(spec.path)] as const] : []));
    await checkDirectories(Object.fromEntries(paths));
  }

  /**
   * Adds a base model under an identifier. A path must lie in the allowed directories.
   *
   * @throws ConflictError `E_CONFLICT` if the identifier belongs to another base model.
   * @throws NotFoundError `E_NOT_FOUND` for a source that {@link resolve} rejects.
   */
  async add(id: string, source: string): Promise<void> {
    const spec = parseBaseSource(source, "source");
    const known = this.#known.get(id);
    if (known !== undefined && nameOf(known) !== nameOf(spec))
      throw new ConflictError(
        `The base model '${id}' is known with another source. Choose another identifier, or stop the service and start it with this source`,
        { param: "id" },
      );
    if (known !== undefined) return;
    // A model of the hub is fetched when it is first used.
    if (spec.kind !== "hub") await this.#pathOf(source, spec, { isTrusted: false });
    this.#known.set(id, spec);
  }

  /**
   * Returns the directory or file of a base model: of a known identifier, of a path in the allowed directories, or of a model on the hub or
   * in Ollama's store.
   *
   * @throws NotFoundError `E_NOT_FOUND` for any other text.
   * @throws ArgumentError `E_ARGUMENT` for a malformed `hf:` or `ollama:` name.
   */
  async resolve(base: string): Promise<BaseSource> {
    const known = this.#known.get(base);
    const path = await this.#pathOf(base, known ?? parseBaseModel(base, "base_model"), { isTrusted: known !== undefined });
    return { id: base, directory: path };
  }

  /**
   * Returns the directory or file of a source.
   *
   * @param base - Text that named the base model, for messages.
   * @param options - `isTrusted`: whether the source was added before, so that its path is not checked against the allowed directories.
   */
  async #pathOf(base: string, spec: BaseModelSpec, { isTrusted }: { readonly isTrusted: boolean }): Promise<string> {
    switch (spec.kind) {
      case "path":
        return isTrusted ? absolutePath(spec.path) : this.#allowed(base, spec.path);
      case "ollama": {
        const path = await findOllamaModel(spec);
        return isTrusted ? path : this.#allowed(base, path);
      }
      case "hub":
      case "name": {
        const directory = await this.#resolveBase(formatBaseModel(spec));
        if (directory === null) throw this.#unknown(base);
        return directory;
      }
    }
  }

  /** Returns a path in the allowed directories. @throws NotFoundError `E_NOT_FOUND` for any other path. */
  async #allowed(base: string, path: string): Promise<string> {
    const roots = this.#allowedRoots === "any" ? [parse(path).root] : this.#allowedRoots;
    const allowed = isAbsolute(path) ? await allowedDirectory(path, roots) : null;
    if (allowed === null) throw this.#unknown(base);
    return allowed;
  }

  /** Returns the error for a base model that does not exist or is not allowed. */
  #unknown(base: string): NotFoundError {
    const paths =
      this.#allowedRoots === "any"
        ? "An absolute path must be a directory with a config.json, or a GGUF file"
        : "An absolute path must be a directory with a config.json, or a GGUF file, in a directory that the service allows: start the service with `--base-root <directory>`, or with `--base-model <id>=<path>`";
    return new NotFoundError(
      `The base model "${base}" does not exist here. Expected one of: ${this.ids.join(", ")}; or ${BASE_MODEL_FORMS}. ${paths}`,
      { param: "base_model" },
    );
  }
}

/** Parses a source in the option `baseModels`. */
function parseOption(source: string): BaseModelSpec {
  try {
    return parseBaseSource(source, "baseModels");
  } catch (cause) {
    throw new ConfigError((cause as Error).message, { cause, param: "baseModels" });
  }
}

/** Returns a text that is equal for equal sources. */
function nameOf(spec: BaseModelSpec): string {
  return spec.kind === "path" ? absolutePath(spec.path) : formatBaseModel(spec);
}
