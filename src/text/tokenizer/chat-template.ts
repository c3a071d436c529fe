/**
 * Chat templates (Jinja) with limits. A template comes with a base model, which may be somebody else's, and renders on the thread that
 * serves requests. Every operation of a template is counted, and a rendering fails at its limit before it can block the thread or exhaust
 * memory. The limits do not depend on time: the same conversation always renders, or always fails.
 */

import { ArgumentError, DataError, UnsupportedError } from "../../base/errors.ts";
import { Lru } from "../../base/util/lru.ts";
import { type MessageForms, probeForms } from "./message-forms.ts";
import { compile, type Template, TemplateLimitReached, TemplateUnsupported } from "./jinja/index.ts";

/** Max length of a template, in UTF-16 units. */
const MAX_TEMPLATE_LENGTH = 65_536;

/** Limits of one rendering. */
export interface TemplateLimits {
  /** Max length of the rendered text and of every intermediate text, in UTF-16 units. @default 4194304 */
  readonly maxOutputLength?: number | undefined;
  /**
   * Max steps of one rendering. A step is a statement, a loop iteration, a call, a created list element, or 32 characters of text to
   * search.
   * @default 1000000
   */
  readonly maxWork?: number | undefined;
}

/** Compiled chat template. */
export interface ChatTemplate {
  /** Names that the template reads: variables, and names of the template's own such as loop variables. */
  readonly names: ReadonlySet<string>;
  /** Forms of messages that the template renders; found at the first use. */
  readonly forms: MessageForms;
  /**
   * Renders the template.
   *
   * @param variables - JSON values by name; undefined ones are absent.
   * @throws ArgumentError `E_ARGUMENT`, without a param, when the template raises an error or exceeds a limit.
   * @throws UnsupportedError `E_UNSUPPORTED`, without a param, naming a construct of Jinja that is not supported.
   */
  render(variables: Readonly<Record<string, unknown>>): string;
}

/** Compiled templates by source. Requests may bring their own template, and most bring the same one. */
const templates = new Lru<string, CachedTemplate>({ maxEntries: 16 });

/** Entry of {@link templates}. */
interface CachedTemplate {
  readonly template: Template;
  /** Absent until they are needed: finding them takes many renderings. */
  forms?: MessageForms;
}

/** Limits of a rendering that finds the forms of messages, whose conversation has at most three messages. */
const PROBE_LIMITS = { maxSteps: 20_000, maxTextLength: 65_536 };

/** Returns the forms of messages that a template renders; found by rendering at the first call. */
function formsOf(entry: CachedTemplate): MessageForms {
  entry.forms ??= probeForms((variables) =>
    entry.template.render({ bos_token: "", eos_token: "", documents: null, add_generation_prompt: false, ...variables }, PROBE_LIMITS),
  );
  return entry.forms;
}

/**
 * Parses a template.
 *
 * @throws DataError `E_DATA` when it is too long or does not parse.
 */
export function compileTemplate(source: string, limits: TemplateLimits = {}): ChatTemplate {
  const meterLimits = { maxSteps: limits.maxWork ?? 1_000_000, maxTextLength: limits.maxOutputLength ?? 4_194_304 };
  if (source.length > MAX_TEMPLATE_LENGTH) {
    throw new DataError(`Expected a chat template of at most ${MAX_TEMPLATE_LENGTH} characters, got ${source.length}.`);
  }
  const entry = cached(source);
  const { template } = entry;
  return {
    names: template.names,
    get forms() {
      return formsOf(entry);
    },
    render(variables) {
      try {
        return template.render(variables, meterLimits);
      } catch (error) {
        const { message } = error as Error;
        if (error instanceof TemplateUnsupported) {
          throw new UnsupportedError(`The chat template failed: ${message}.`, { cause: error });
        }
        const hint = error instanceof TemplateLimitReached ? ". Shorten the conversation, or use a simpler template" : "";
        throw new ArgumentError(`The chat template failed: ${message}${hint}`, { cause: error });
      }
    },
  };
}

/** Returns the compiled template of a source, compiled at its first use. */
function cached(source: string): CachedTemplate {
  const existing = templates.get(source);
  if (existing !== undefined) return existing;
  try {
    const compiled: CachedTemplate = { template: compile(source) };
    templates.set(source, compiled);
    return compiled;
  } catch (error) {
    throw new DataError(`The chat template does not parse: ${(error as Error).message}`, { cause: error });
  }
}
