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

/** Checkpoint of a trained model. */
export interface CheckpointName {
  readonly model: ModelName;
  /** Step of the checkpoint; undefined for the newest. */
  readonly step: number | undefined;
}

/** Parses `project/name:step`; `:step` is a number, `stepN` as in model addresses, `latest`, or absent for the newest. */
export function checkpointName(text: string): CheckpointName {
  const [model = "", step, ...rest] = text.split(":");
  const found = step === undefined || step === "latest" ? undefined : /^(?:step)?(\d{1,9})$/u.exec(step)?.[1];
  if (rest.length > 0 || (found === undefined && step !== undefined && step !== "latest"))
    throw new InvalidArgumentError("Expected project/name:step, with a number or `latest` as the step.");
  return { model: modelName(model), step: found === undefined ? undefined : Number(found) };
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
