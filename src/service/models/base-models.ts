/** Base models of a service: their names in requests, and the checks before they are used. */
import { isAbsolute } from "node:path";
import { baseFailure } from "../../engine/base-failure.ts";
import type { Engine, VerifyBaseOptions } from "../../engine/port.ts";
import { ArgumentError, BaseModelError, NotFoundError, UnsupportedError } from "../../base/errors.ts";
import { formatBaseModel, parseBaseModel, parseBaseSource } from "../../base/util/base-model.ts";
import { Lru, remember } from "../../base/util/lru.ts";
import { readGenerationDefaults, type GenerationDefaults } from "./generation-defaults.ts";
import type { Hub } from "../hub/hub.ts";
import { parsePolicyName } from "../common/names.ts";
import { shippedDirectory } from "./shipped-base.ts";
import type { TokenizerSource } from "./tokenizers.ts";

/** Options of {@link BaseModels}. */
export interface BaseModelsOptions {
  readonly engine: Engine;
  readonly hub: Hub | null;
  readonly tokenizers: TokenizerSource;
  /** Sources by identifier, as in the options of the service. */
  readonly sources: Readonly<Record<string, string>>;
}

/** Base models that the requests of a service name. */
export class BaseModels {
  readonly #options: BaseModelsOptions;
  /** Sources of base models by identifier: given in the options, and added later. */
  readonly #sources: Map<string, string>;
  /** Sampling defaults by directory, so that each directory is checked once. */
  readonly #defaults = new Lru<string, Promise<GenerationDefaults>>();

  constructor(options: BaseModelsOptions) {
    this.#options = options;
    this.#sources = new Map(Object.entries(options.sources));
  }

  /** Identifiers of the known base models. */
  get ids(): readonly string[] {
    return this.#options.engine.capabilities().baseModels;
  }

  /**
   * Returns the name under which a base model is stored and loaded: equal names are the same model.
   *
   * @throws ArgumentError `E_ARGUMENT` for a malformed `hf:` or `ollama:` name.
   */
  canonical(base: string): string {
    return this.ids.includes(base) ? base : formatBaseModel(parseBaseModel(base, "base_model"));
  }

  /** Whether a base model can be used without a request to the hub. */
  async isOnThisMachine(base: string): Promise<boolean> {
    const source = this.#sources.get(base);
    // The engine itself has the files of an identifier without a source.
    if (source === undefined && this.ids.includes(base)) return true;
    const spec = source === undefined ? parseBaseModel(base, "base_model") : parseBaseSource(source, "source");
    return spec.kind !== "hub" || (await this.#options.hub?.isKept(formatBaseModel(spec))) === true;
  }

  /**
   * Returns the name of a base model that a chat request can sample: a known identifier, a path, a model in Ollama's store, or a model of
   * the hub that is on this machine. Null for any other name.
   */
  async servable(name: string): Promise<string | null> {
    if (this.ids.includes(name)) return name;
    if (parsePolicyName(name) !== null) return null;
    const spec = parseBaseModel(name, "model");
    if (spec.kind === "name" || (spec.kind === "path" && !isAbsolute(spec.path))) return null;
    const base = formatBaseModel(spec);
    return spec.kind !== "hub" || (await this.isOnThisMachine(base)) ? base : null;
  }

  /**
   * Makes a base model known: fetches it from the hub if necessary, checks its files, and gives it an identifier.
   *
   * @param id - Identifier; null if requests will name the model by its source.
   * @returns the name for `model` and `base_model`.
   * @throws NotFoundError `E_NOT_FOUND` for a source that does not exist or is not allowed.
   * @throws BaseModelError `E_BASE_MODEL` for a base model that cannot be loaded.
   * @throws ConflictError `E_CONFLICT` if the identifier belongs to another base model.
   * @throws UnsupportedError `E_UNSUPPORTED` if the engine takes no identifiers.
   */
  async add(source: string, id: string | null): Promise<string> {
    const { engine } = this.#options;
    if (id === null) {
      const base = this.canonical(source);
      await this.requireUsable(base, { readsWeights: false });
      return base;
    }
    if (engine.addBase === undefined)
      throw new UnsupportedError(
        `The engine "${engine.capabilities().name}" of this service has fixed base models: ${this.ids.join(", ")}`,
        { param: "id" },
      );
    if (parsePolicyName(id) !== null)
      throw new ArgumentError(`Expected \`id\` not to be the address of a trained model, got '${id}'`, { param: "id" });
    const spec = parseBaseSource(source, "source");
    if (spec.kind === "path" && !isAbsolute(spec.path))
      throw new ArgumentError(`Expected \`source\` to be an absolute path, hf:<owner>/<name> or ollama:<name>, got '${source}'`, {
        param: "source",
      });
    // Checked under the name of its source first, so that no identifier stands for a base model that cannot be used.
    await this.requireUsable(formatBaseModel(spec), { readsWeights: false });
    await engine.addBase(id, source);
    this.#sources.set(id, source);
    return id;
  }

  /**
   * Checks that a base model can be trained and sampled. Files that have not changed since the last check are not read again, and the
   * base model in the package is not checked.
   *
   * @param options - Extent of the check. @default everything
   * @throws NotFoundError `E_NOT_FOUND` for an unknown base model.
   * @throws BaseModelError `E_BASE_MODEL` for a base model that cannot be loaded.
   */
  async requireUsable(base: string, options: VerifyBaseOptions = {}): Promise<void> {
    const { engine, tokenizers } = this.#options;
    const { directory } = await engine.describeBase(base);
    if (directory === shippedDirectory()) return;
    try {
      await engine.verifyBase?.(base, options);
      if (engine.verifyBase === undefined || options.readsWeights !== false) await tokenizers(directory);
      await remember(this.#defaults, directory, () => readGenerationDefaults(directory));
    } catch (error) {
      throw baseFailure(base, error);
    }
  }

  /**
   * Checks the base models of the service's options, except models of the hub, which are fetched when they are first used.
   *
   * @throws BaseModelError `E_BASE_MODEL` naming the first base model that cannot be loaded.
   */
  async checkGiven(): Promise<void> {
    for (const [id, source] of this.#sources) {
      if (parseBaseSource(source, "baseModels").kind === "hub") continue;
      try {
        await this.requireUsable(id, { readsWeights: false, encodesTexts: false });
      } catch (error) {
        const failure = error instanceof NotFoundError ? baseFailure(id, error) : error;
        if (!(failure instanceof BaseModelError)) throw failure;
        throw new BaseModelError(failure.message, { cause: failure, param: "baseModels" });
      }
    }
  }
}
