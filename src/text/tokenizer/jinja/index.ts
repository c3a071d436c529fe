/**
 * Jinja templates with Python's semantics, as transformers renders chat templates: its sandboxed environment with `trim_blocks`,
 * `lstrip_blocks`, loop controls, `tojson`, `raise_exception`, `strftime_now` and the block `generation`. Templates are untrusted: they
 * can access only the values that they are given, and every rendering has limits. This is not a general template engine: there
 * are no files to include and no extensions.
 */

import { TemplateFailure } from "./errors.ts";
import { GLOBALS } from "./globals.ts";
import { Meter, type MeterLimits } from "./meter.ts";
import { parseTemplate } from "./parser.ts";
import { Output, Scope } from "./scope.ts";
import { readNames } from "./scoping.ts";
import { compileStatements } from "./statements.ts";
import { fromJson } from "./values.ts";

export { TemplateLimitReached, TemplateUnsupported } from "./errors.ts";
export { jsonText, parseJsonValue } from "./json.ts";
export { strip } from "./text.ts";
export { Dict } from "./values.ts";
export type { MeterLimits } from "./meter.ts";

/** Compiled template. */
export interface Template {
  /** Names that the template reads: variables, and names of the template's own such as loop variables. */
  readonly names: ReadonlySet<string>;
  /**
   * Renders the template.
   *
   * @param variables - JSON values by name; undefined ones are absent.
   * @throws TemplateFailure where Python raises an error.
   * @throws TemplateUnsupported naming a construct that is not supported.
   * @throws TemplateLimitReached when the rendering exceeds its limits.
   */
  render(variables: Readonly<Record<string, unknown>>, limits: MeterLimits): string;
}

/**
 * Compiles a template.
 *
 * @throws TemplateSyntaxFailure naming the line.
 * @throws TemplateFailure for a filter or test that does not exist.
 */
export function compile(source: string): Template {
  const statements = parseTemplate(source);
  const { run, localNames } = compileStatements(statements);
  return {
    names: readNames(statements),
    render(variables, limits) {
      const meter = new Meter(limits);
      const globals = new Scope(meter, undefined, new Map(GLOBALS));
      for (const [name, value] of Object.entries(variables)) if (value !== undefined) globals.set(name, fromJson(value));
      const output = new Output(meter);
      try {
        run(globals.child(localNames), output);
      } catch (error) {
        // A template can nest values so deeply that comparing or printing them exhausts the stack.
        if (error instanceof RangeError) throw new TemplateFailure("RecursionError: a value is nested too deeply", { cause: error });
        throw error;
      }
      return output.text;
    },
  };
}
