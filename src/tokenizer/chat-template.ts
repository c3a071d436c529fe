/**
 * Chat templates, run with limits.
 *
 * A template comes with a base model, which may be somebody else's, and it runs on the thread that serves. Three limits
 * make it harmless. The first two are deterministic and end almost everything; the third is the backstop for a single
 * library call that takes long.
 *
 * 1. Size: of the template, and of every text it makes.
 * 2. Work: each evaluated node costs 1, each list element that an expression makes costs 1.
 * 3. Time: a watchdog of `node:vm` ends the running JavaScript wherever it is.
 *
 * A watchdog costs more than most renderings do. So a rendering runs without one first, within limits of size and work so
 * narrow that nothing in it can take long; one that needs more runs again, under the watchdog.
 */

import * as jinja from "@huggingface/jinja";
import { createContext, Script } from "node:vm";
import { ArgumentError, DataError, isAbort, WhetstoneError } from "../errors.ts";
import { isPrinted, pythonText, type RuntimeValue, type Statement, withPrinted } from "./python-text.ts";

/** Limits of one template. */
export interface TemplateLimits {
  /** Length of the template, in UTF-16 units. @default 65536 */
  readonly maxTemplateLength?: number | undefined;
  /** Length of the rendered text and of every text on the way, in UTF-16 units. @default 4194304 */
  readonly maxOutputLength?: number | undefined;
  /** Evaluated nodes plus list elements made, per rendering. @default 1000000 */
  readonly maxWork?: number | undefined;
  /** Wall-clock backstop of one rendering. @default 2000 */
  readonly timeoutMs?: number | undefined;
}

/** A compiled template. */
export interface ChatTemplate {
  /**
   * @throws ArgumentError `E_ARGUMENT`, param `messages`, when the template raises an error or exceeds a limit.
   */
  render(variables: Readonly<Record<string, unknown>>): string;
}

/** The block settings that model authors test their templates with. */
const BLOCK_OPTIONS = { lstrip_blocks: true, trim_blocks: true } as const;

/** The part of the library we use, typed here: its own declarations do not resolve under Node's module rules. */
interface Library {
  readonly tokenize: (source: string, options: typeof BLOCK_OPTIONS) => unknown;
  readonly parse: (tokens: unknown) => Statement;
  readonly Environment: new () => Environment;
  readonly Interpreter: new (environment: Environment) => {
    run(program: Statement): RuntimeValue;
    evaluate(statement: Statement | undefined, environment: Environment): RuntimeValue;
  };
}
interface Environment {
  set(name: string, value: unknown): unknown;
}
const library: Library = jinja as unknown as Library;

type ResolvedLimits = Readonly<Record<keyof TemplateLimits, number>>;

/** What needs no watchdog: some milliseconds of work, on texts of which one library call makes no large ones. */
const BRIEF = { maxWork: 20_000, maxOutputLength: 65_536 } as const;

/** A limit of size or work was met. */
class LimitReached extends Error {}

/**
 * Parses a template.
 *
 * @throws DataError `E_DATA` when it is too long or does not parse.
 */
export function compileTemplate(source: string, limits: TemplateLimits = {}): ChatTemplate {
  const resolved: ResolvedLimits = {
    maxTemplateLength: limits.maxTemplateLength ?? 65_536,
    maxOutputLength: limits.maxOutputLength ?? 4_194_304,
    maxWork: limits.maxWork ?? 1_000_000,
    timeoutMs: limits.timeoutMs ?? 2_000,
  };
  if (source.length > resolved.maxTemplateLength) {
    throw new DataError(`Expected a chat template of at most ${resolved.maxTemplateLength} characters, got ${source.length}.`);
  }
  let program: Statement;
  try {
    program = withWatchdog(resolved.timeoutMs, () => withPrinted(library.parse(library.tokenize(source, BLOCK_OPTIONS))));
  } catch (error) {
    throw new DataError(`The chat template does not parse: ${messageOf(error)}`, { cause: error });
  }
  return { render: (variables) => render(program, variables, resolved) };
}

function render(program: Statement, variables: Readonly<Record<string, unknown>>, limits: ResolvedLimits): string {
  try {
    return briefly(program, variables, limits) ?? withWatchdog(limits.timeoutMs, () => run(program, variables, limits));
  } catch (error) {
    if (WhetstoneError.isInstance(error) || isAbort(error)) throw error;
    throw new ArgumentError(`The chat template failed: ${messageOf(error)}`, { cause: error, param: "messages" });
  }
}

/** A rendering that needs no watchdog; undefined when it turned out to need one. */
function briefly(program: Statement, variables: Readonly<Record<string, unknown>>, limits: ResolvedLimits): string | undefined {
  if (textIn(variables) > BRIEF.maxOutputLength) return undefined;
  const { maxWork, maxOutputLength } = limits;
  try {
    return run(program, variables, {
      maxWork: Math.min(maxWork, BRIEF.maxWork),
      maxOutputLength: Math.min(maxOutputLength, BRIEF.maxOutputLength),
    });
  } catch (error) {
    if (error instanceof LimitReached) return undefined;
    throw error;
  }
}

/** How much a value holds: every text's length, and one for each part. */
function textIn(value: unknown): number {
  if (typeof value === "string") return value.length;
  if (typeof value !== "object" || value === null) return 1;
  return Object.values(value).reduce((sum: number, part) => sum + textIn(part), 1);
}

type RunLimits = Pick<ResolvedLimits, "maxWork" | "maxOutputLength">;

function run(program: Statement, variables: Readonly<Record<string, unknown>>, limits: RunLimits): string {
  const environment = new library.Environment();
  const interpreter = new MeteredInterpreter(environment, limits);
  setGlobals(environment, interpreter);
  for (const [name, value] of Object.entries(variables)) {
    if (value !== undefined) environment.set(name, value);
  }
  return String(interpreter.run(program).value);
}

/** The library's interpreter with a meter on every node. */
class MeteredInterpreter extends library.Interpreter {
  readonly #limits: RunLimits;
  #work = 0;

  constructor(environment: Environment, limits: RunLimits) {
    super(environment);
    this.#limits = limits;
  }

  charge(work: number): void {
    this.#work += work;
    if (this.#work > this.#limits.maxWork) {
      throw new LimitReached(`it did more than ${this.#limits.maxWork} steps`);
    }
  }

  override evaluate(statement: Statement | undefined, environment: Environment): RuntimeValue {
    this.charge(1);
    const result = isPrinted(statement) ? this.#print(statement.expressions, environment) : super.evaluate(statement, environment);
    if (statement !== undefined && makesValue(statement)) {
      const { value } = result;
      if (typeof value === "string") {
        if (value.length > this.#limits.maxOutputLength) {
          throw new LimitReached(`it made a text of more than ${this.#limits.maxOutputLength} characters`);
        }
        // Copying text is some sixty times cheaper than evaluating a node.
        this.charge(value.length / 64);
      } else if (Array.isArray(value)) {
        this.charge(value.length);
      }
    }
    return result;
  }

  #print(expressions: readonly Statement[], environment: Environment): RuntimeValue {
    const value = expressions.map((expression) => pythonText(this.evaluate(expression, environment))).join("");
    const literal: TextLiteral = { type: "StringLiteral", value };
    return super.evaluate(literal, environment);
  }
}

/** The library's node of a literal text: evaluating one makes the library's own kind of text. */
interface TextLiteral extends Statement {
  readonly value: string;
}

/** Whether a node makes a new value, as opposed to naming one that exists already. */
function makesValue(statement: Statement): boolean {
  if (statement.type === "Identifier") return false;
  if (statement.type !== "MemberExpression") return true;
  const property = (statement as Statement & { readonly property?: Statement }).property;
  return property?.type === "SliceExpression";
}

function setGlobals(environment: Environment, interpreter: MeteredInterpreter): void {
  for (const [name, value] of [
    ["true", true],
    ["True", true],
    ["false", false],
    ["False", false],
    ["none", null],
    ["None", null],
  ] as const) {
    environment.set(name, value);
  }
  environment.set("raise_exception", (message: unknown) => {
    throw new Error(String(message));
  });
  // Our own `range`, because the library's makes the list before anybody could meter it.
  environment.set("range", (start: unknown, stop: unknown, step: unknown = 1) => {
    const [from, to] = stop === undefined ? [0, start] : [start, stop];
    for (const bound of [from, to, step]) {
      if (!Number.isSafeInteger(bound)) throw new Error(`range() expects integers, got ${String(bound)}`);
    }
    const [first, end, by] = [from as number, to as number, step as number];
    if (by === 0) throw new Error("range() step must not be zero");
    const count = Math.max(0, Math.ceil((end - first) / by));
    interpreter.charge(count);
    return Array.from({ length: count }, (_, index) => first + index * by);
  });
  environment.set("strftime_now", (format: unknown) => formatNow(String(format)));
}

/** `strftime` for the codes that templates use to print today's date, in local time as in the reference environment. */
function formatNow(format: string): string {
  const now = new Date();
  const two = (value: number): string => String(value).padStart(2, "0");
  const named = (options: Intl.DateTimeFormatOptions): string => new Intl.DateTimeFormat("en-US", options).format(now);
  const codes: Readonly<Record<string, () => string>> = {
    Y: () => String(now.getFullYear()),
    m: () => two(now.getMonth() + 1),
    d: () => two(now.getDate()),
    H: () => two(now.getHours()),
    M: () => two(now.getMinutes()),
    S: () => two(now.getSeconds()),
    B: () => named({ month: "long" }),
    b: () => named({ month: "short" }),
    A: () => named({ weekday: "long" }),
    a: () => named({ weekday: "short" }),
    "%": () => "%",
  };
  return format.replaceAll(/%(.)/gs, (whole, code: string) => codes[code]?.() ?? whole);
}

const slot: { run: (() => unknown) | undefined } = { run: undefined };
const watchdogContext = createContext(slot);
const watchdogScript = new Script("run()");

/**
 * Runs synchronous code under a time limit. The watchdog of `node:vm` terminates whatever JavaScript runs inside the call,
 * including functions of this realm, so the library need not be loaded a second time.
 */
function withWatchdog<T>(timeoutMs: number, run: () => T): T {
  slot.run = run;
  try {
    return watchdogScript.runInContext(watchdogContext, { timeout: timeoutMs }) as T;
  } catch (error) {
    if ((error as { readonly code?: unknown } | null)?.code === "ERR_SCRIPT_EXECUTION_TIMEOUT") {
      throw new Error(`it ran longer than ${timeoutMs} ms`, { cause: error });
    }
    throw error;
  } finally {
    slot.run = undefined;
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
