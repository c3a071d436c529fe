/** Warnings in the log about parts of chat requests that have no effect. */
import type { ChatTokenizer } from "../../../text/tokenizer/index.ts";
import type { ServiceLogger } from "../../common/logger.ts";
import type { ChatRequest } from "./request.ts";

/** Maximum number of names that are remembered; clients may send any number of different names. */
const MAX_NAMES = 1000;
/** Maximum length of a remembered name, in UTF-16 units; longer names are cut. */
const MAX_NAME_LENGTH = 64;

/** Logger of request fields that have no effect; logs each field once. */
export class IgnoredFieldLog {
  readonly #message: string;
  readonly #logged = new Set<string>();

  /** @param message - Description of the problem with the fields. */
  constructor(message: string) {
    this.#message = message;
  }

  /** Logs the names that were not logged before. */
  report(names: readonly string[], logger: ServiceLogger | undefined): void {
    for (const name of names) {
      const cutName = name.slice(0, MAX_NAME_LENGTH);
      if (this.#logged.has(cutName) || this.#logged.size >= MAX_NAMES) continue;
      this.#logged.add(cutName);
      logger?.warn(this.#message, { field: cutName });
    }
  }
}

/** Logger of unknown fields, known fields without an effect, and unused template variables of chat requests. */
export class IgnoredParts {
  readonly #logger: ServiceLogger | undefined;
  readonly #unknown = new IgnoredFieldLog("A chat completion request carries a field that nothing here knows; it is ignored");
  readonly #inert = new IgnoredFieldLog("A chat completion request sets a field that acts on nothing here; it has no effect");
  readonly #kwargs = new IgnoredFieldLog(
    "A chat completion request sets a variable in `chat_template_kwargs` that the chat template does not read; it has no effect",
  );

  constructor(logger: ServiceLogger | undefined) {
    this.#logger = logger;
  }

  /** Logs the fields of a request that have no effect. */
  reportFields({ unknownFields, inertFields }: Pick<ChatRequest, "unknownFields" | "inertFields">): void {
    this.#unknown.report(unknownFields, this.#logger);
    this.#inert.report(inertFields, this.#logger);
  }

  /**
   * Logs the names in `chat_template_kwargs` that cannot change the prompt.
   *
   * @param tokenizer - Tokenizer with the chat template; null for a prompt without a template.
   * @returns the names.
   */
  reportKwargs({ templateKwargs, tools, template }: ChatRequest, tokenizer: ChatTokenizer | null): readonly string[] {
    const options = { tools, template: template ?? undefined };
    const unused = templateKwargs.filter((name) => tokenizer === null || !tokenizer.readsVariable(name, options));
    this.#kwargs.report(unused, this.#logger);
    return unused;
  }
}
