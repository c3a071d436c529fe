/**
 * JSON Schema validation of texts by ajv, with three differences from its defaults:
 *
 * - The keyword `pattern` accepts escapes that the flag `u` of JavaScript forbids.
 * - The format `regex` rejects texts with such escapes.
 * - `multipleOf` uses decimal arithmetic, so that 0.3 is a multiple of 0.1.
 */
import { parseJson, messageOf } from "../../../base/util/values.ts";
import { createContext, Script } from "node:vm";
import { Ajv2020, type ErrorObject, type ValidateFunction } from "ajv/dist/2020.js";
import ajvFormats from "ajv-formats";
import { ArgumentError } from "../../../base/errors.ts";
import { Lru } from "../../../base/util/lru.ts";
import { toLatestDraftDeep } from "../../../text/grammar/compile/schema/drafts.ts";
import type { SchemaObject } from "../../../text/grammar/compile/schema/keywords.ts";
import { isMultiple } from "../../../text/grammar/compile/schema/multiples.ts";

/** Maximum duration of one validation, in milliseconds; a limit is needed because patterns may backtrack. */
const MAX_VALIDATION_MS = 1000;

/**
 * Compiles a pattern with the flag `u`, or without it if the pattern has escapes that the flag forbids. Ajv needs the member `code` for
 * validators that it writes as source text, which this module does not do.
 */
const regExp = Object.assign(
  (pattern: string): RegExp => {
    try {
      return new RegExp(pattern, "u");
    } catch {
      return new RegExp(pattern);
    }
  },
  { code: "" },
);

/** Whether a text is a regular expression with the flag `u`. Without the flag, unknown escapes would be valid. */
function isRegExp(text: string): boolean {
  try {
    return new RegExp(text, "u") instanceof RegExp;
  } catch {
    return false;
  }
}

/** Cached validators, limited in number and in the total length of their schemas; the least recently used is dropped first. */
const validators = new Lru<string, ValidateFunction>({ maxEntries: 64, maxWeight: 4_000_000 });

/**
 * Returns the cached or new validator of a schema, which is given as JSON.
 *
 * @param schema - The schema.
 * @param options.tracksEvaluated - Whether ajv tracks evaluated members and items, which only `unevaluatedProperties` and
 *   `unevaluatedItems` need. If false, both keywords are ignored. @default whether the schema has one of them
 * @throws ArgumentError `E_ARGUMENT` for a schema that ajv cannot compile.
 */
function validatorOf(schema: string, { tracksEvaluated = schema.includes('"unevaluated') } = {}): ValidateFunction {
  const key = tracksEvaluated ? schema : `untracked ${schema}`;
  const known = validators.get(key);
  if (known !== undefined) return known;
  const {
    $schema: _schema,
    $id: _id,
    id: _oldId,
    ...latest
  } = toLatestDraftDeep(JSON.parse(schema) as SchemaObject) as Record<string, unknown>;
  const ajv = createAjv(tracksEvaluated);
  try {
    const validator = ajv.compile(latest);
    validators.set(key, validator, key.length);
    return validator;
  } catch (cause) {
    const problem = messageOf(cause);
    throw new ArgumentError(`The schema cannot be validated, which some of its keywords need: ${problem.slice(0, 300)}`, { cause });
  }
}

/** Creates ajv with the differences from its defaults that the head of this file lists. */
function createAjv(tracksEvaluated: boolean): Ajv2020 {
  const ajv = new Ajv2020({ strict: false, meta: false, validateSchema: false, logger: false, code: { regExp, optimize: false } });
  ajvFormats.default(ajv);
  ajv.addFormat("regex", isRegExp);
  if (!tracksEvaluated) {
    ajv.opts.unevaluated = false;
    ajv.removeKeyword("unevaluatedProperties").removeKeyword("unevaluatedItems");
  }
  ajv.removeKeyword("multipleOf");
  ajv.addKeyword({
    keyword: "multipleOf",
    type: "number",
    schemaType: "number",
    validate: (divisor: number, value: number) => isMultiple(value, divisor),
    error: { message: ({ schemaCode }) => `must be multiple of ${String(schemaCode)}` },
  });
  return ajv;
}

/**
 * Checks that texts can be validated against a schema, which is given as JSON.
 *
 * @throws ArgumentError `E_ARGUMENT` for a schema that ajv cannot compile.
 */
export function checkValidator(schema: string): void {
  validatorOf(schema);
}

// Only code in a `vm` script can be interrupted after a timeout, also while a regular expression backtracks.
const context = createContext({ run: null as (() => boolean) | null });
const script = new Script("run()");

/** Runs a validation for at most {@link MAX_VALIDATION_MS}; returns null on timeout. */
function runWithTimeout(run: () => boolean): boolean | null {
  context["run"] = run;
  try {
    return script.runInContext(context, { timeout: MAX_VALIDATION_MS }) as boolean;
  } catch (error) {
    if ((error as { readonly code?: unknown }).code === "ERR_SCRIPT_EXECUTION_TIMEOUT") return null;
    throw error;
  } finally {
    context["run"] = null;
  }
}

/** Returns the description of a validation error: the path of the value, the problem and the keyword. */
function shownError({ instancePath, message, keyword }: ErrorObject): string {
  return `${instancePath === "" ? "the value" : instancePath} ${message ?? "does not fit"} (\`${keyword}\`)`;
}

/**
 * Finds the first violation of a schema in a text, both JSON.
 *
 * @returns Description of the violation; null if the text is valid, or only the beginning of a value.
 */
export function violationOf(schema: string, text: string): string | null {
  const value = parseJson(text);
  if (value === undefined) return null;
  let validator = validatorOf(schema);
  let isValid: boolean | null;
  try {
    isValid = runWithTimeout(() => validator(value));
  } catch (error) {
    // Ajv's tracking of evaluated members throws for some schemas with both `patternProperties` and `anyOf`.
    if (!(error instanceof TypeError)) throw error;
    validator = validatorOf(schema, { tracksEvaluated: false });
    isValid = runWithTimeout(() => validator(value));
  }
  if (isValid === null) return `the validation took more than ${MAX_VALIDATION_MS} ms`;
  return isValid ? null : shownError(validator.errors![0]!);
}
