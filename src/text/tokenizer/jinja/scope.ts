/** Variables and output of a rendering. The functions that `statements.ts` compiles run with a scope and an output. */

import type { Meter } from "./meter.ts";
import type { TemplateValue } from "./values.ts";

const NO_NAMES: ReadonlySet<string> = new Set();

/** Variables of a template, or of one body of a loop, macro or block. */
export class Scope {
  readonly meter: Meter;
  readonly #parent: Scope | undefined;
  readonly #variables: Map<string, TemplateValue>;
  /** Names that are never looked up in outer scopes, although those may have them; `scoping.ts` finds them. */
  readonly #localNames: ReadonlySet<string>;

  /**
   * @param parent - Outer scope; undefined for the global names.
   * @param localNames - Names that are never looked up in outer scopes.
   */
  constructor(meter: Meter, parent: Scope | undefined, variables = new Map<string, TemplateValue>(), localNames = NO_NAMES) {
    this.meter = meter;
    this.#parent = parent;
    this.#variables = variables;
    this.#localNames = localNames;
  }

  /** Returns a new scope inside this one. */
  child(localNames?: ReadonlySet<string>): Scope {
    return new Scope(this.meter, this, undefined, localNames);
  }

  /** Returns the value of a name in this scope or an outer one; undefined for an unknown name. */
  get(name: string): TemplateValue | undefined {
    const value = this.#variables.get(name);
    if (value !== undefined || this.#localNames.has(name)) return value;
    return this.#parent?.get(name);
  }

  /** Sets a variable of this scope. Returns undefined, the result of a statement that does not leave a loop. */
  set(name: string, value: TemplateValue): undefined {
    this.#variables.set(name, value);
    return undefined;
  }
}

/** Text of a rendering so far. */
export class Output {
  readonly #meter: Meter;
  text = "";

  constructor(meter: Meter) {
    this.#meter = meter;
  }

  /** Appends a text. Returns undefined, the result of a statement that does not leave a loop. */
  write(text: string): undefined {
    this.text += text;
    this.#meter.checkLength(this.text.length);
    this.#meter.chargeCopy(text.length);
    return undefined;
  }
}
