import { InvalidArgumentError } from "commander";

/** A parser of whole numbers from `min`. */
export function integer(min: number): (text: string) => number {
  return (text) => {
    const value = /^-?\d+$/.test(text) ? Number(text) : Number.NaN;
    if (!(Number.isSafeInteger(value) && value >= min)) throw new InvalidArgumentError(`Expected a whole number from ${min}.`);
    return value;
  };
}

/** A parser of numbers that are not negative. */
export function positive(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !(value >= 0)) throw new InvalidArgumentError("Expected a number of at least 0.");
  return value;
}

/** `project/name`, or `name` in a default project. */
export function modelName(text: string): { readonly project: string; readonly name: string } {
  const parts = text.split("/");
  const [project, name] = parts.length === 1 ? ["default", parts[0]] : parts;
  if (parts.length > 2 || !project || !name) throw new InvalidArgumentError("Expected project/name, or a name alone.");
  return { project, name };
}
