/** Settings of a run in the form of trackers. */

/**
 * Returns the settings of a run as flat parameters: nested keys are joined by dots, lists become JSON text, and null values are omitted.
 */
export function parametersOf(config: Readonly<Record<string, unknown>>): Map<string, string | number | boolean> {
  const parameters = new Map<string, string | number | boolean>();
  const add = (name: string, value: unknown): void => {
    if (value === null || value === undefined) return;
    if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") parameters.set(name, value);
    else if (Array.isArray(value)) parameters.set(name, JSON.stringify(value));
    else for (const [key, member] of Object.entries(value)) add(name === "" ? key : `${name}.${key}`, member);
  };
  add("", config);
  return parameters;
}
