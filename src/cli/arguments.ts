import { InvalidArgumentError } from "commander";
import type { ModelName } from "./connected.ts";

/** Returns a parser of integers of at least `min`. */
export function integer(min: number): (text: string) => number {
  return (text) => {
    const value = /^-?\d+$/.test(text) ? Number(text) : Number.NaN;
    if (!(Number.isSafeInteger(value) && value >= min)) throw new InvalidArgumentError(`Expected a whole number from ${min}.`);
    return value;
  };
}

/** Parses a non-negative number. */
export function positive(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !(value >= 0)) throw new InvalidArgumentError("Expected a number of at least 0.");
  return value;
}

/** Parses `project/name`, or `name` in the project `default`. */
export function modelName(text: string): ModelName {
  const parts = text.split("/");
  const [project, name] = parts.length === 1 ? ["default", parts[0]] : parts;
  if (parts.length > 2 || !project || !name) throw new InvalidArgumentError("Expected project/name, or a name alone.");
  return { project, name };
}
