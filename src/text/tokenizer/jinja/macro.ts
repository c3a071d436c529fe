/** Macros of templates, and the binding of their arguments. */

import { type ScopedBody, renderBody } from "./body.ts";
import { typeError } from "./errors.ts";
import type { Evaluate } from "./expressions.ts";
import type { Meter } from "./meter.ts";
import type { MacroDefinition } from "./nodes.ts";
import type { Scope } from "./scope.ts";
import { Callable, Dict, type Keywords, Tuple, Undefined, type TemplateValue } from "./values.ts";

/** Macro of a template, and the body of a call block: calling it returns the text of its body. */
export class Macro extends Callable {
  override readonly attributes: ReadonlyMap<string, TemplateValue>;

  /**
   * @param name - Name of the macro; null for the body of a call block.
   * @param defaults - Default of each parameter; undefined for a parameter without one.
   * @param scope - Scope in which the macro is defined, and whose variables its body reads.
   */
  constructor(
    definition: MacroDefinition,
    name: string | null,
    defaults: readonly (Evaluate | undefined)[],
    body: ScopedBody,
    scope: Scope,
  ) {
    super((meter, args, keywords) => {
      const bind = (bodyScope: Scope): void => bindArguments(meter, definition, defaults, bodyScope, args, keywords);
      return meter.runNested(() => renderBody(body, scope, bind).text);
    }, "Macro");
    this.attributes = new Map<string, TemplateValue>([
      ["name", name],
      ["arguments", new Tuple(definition.parameters.map((parameter) => parameter.name))],
      ["catch_kwargs", receives(definition, "kwargs")],
      ["catch_varargs", receives(definition, "varargs")],
      ["caller", definition.reads.has("caller")],
      ["explicit_caller", hasParameter(definition, "caller")],
    ]);
  }

  override print(): string {
    const name = this.attributes.get("name");
    return typeof name === "string" ? `<Macro '${name}'>` : "<Macro anonymous>";
  }
}

/** Whether a macro has a parameter of this name. */
function hasParameter({ parameters }: MacroDefinition, name: string): boolean {
  return parameters.some((parameter) => parameter.name === name);
}

/** Whether a macro reads a special name, such as `varargs`, that no parameter of its own has. */
function receives(definition: MacroDefinition, name: "caller" | "kwargs" | "varargs"): boolean {
  return definition.reads.has(name) && !hasParameter(definition, name);
}

/** Removes a keyword argument and returns its value; undefined if it was not given. */
function taken(keywords: Map<string, TemplateValue>, name: string): TemplateValue | undefined {
  const value = keywords.get(name);
  keywords.delete(name);
  return value;
}

/** Sets the parameters of a macro, and the special names that it reads, in the scope of its body. */
function bindArguments(
  meter: Meter,
  definition: MacroDefinition,
  defaults: readonly (Evaluate | undefined)[],
  scope: Scope,
  args: readonly TemplateValue[],
  keywords: Keywords,
): void {
  const { name, parameters } = definition;
  meter.charge(parameters.length + args.length + keywords.size);
  const remaining = new Map(keywords);
  for (const [index, parameter] of parameters.entries()) {
    const given = args[index] === undefined ? taken(remaining, parameter.name) : args[index];
    if (given !== undefined) {
      scope.set(parameter.name, given);
      continue;
    }
    // A default may read the parameters before it, which are already set.
    const defaultOf = defaults[index];
    const value = defaultOf === undefined ? new Undefined(`parameter '${parameter.name}' was not provided`) : defaultOf(scope);
    scope.set(parameter.name, value);
  }
  if (receives(definition, "caller")) {
    const caller = taken(remaining, "caller");
    scope.set("caller", caller === undefined || caller === null ? new Undefined("No caller defined") : caller);
  }
  if (receives(definition, "kwargs")) {
    const dict = new Dict();
    for (const [key, value] of remaining) dict.set(key, value);
    scope.set("kwargs", dict);
  } else if (remaining.size > 0) {
    const [unknownKeyword = ""] = remaining.keys();
    typeError(`macro '${name}' takes no keyword argument '${unknownKeyword}'`);
  }
  if (receives(definition, "varargs")) scope.set("varargs", new Tuple(args.slice(parameters.length)));
  else if (args.length > parameters.length) typeError(`macro '${name}' takes not more than ${parameters.length} argument(s)`);
}
