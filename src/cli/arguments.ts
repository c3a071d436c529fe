/**
 * Parsers of arguments and options that several commands share. Their messages follow the name of the option in the output of commander.
 */

import { InvalidArgumentError } from "commander";
import type { JsonObject } from "../base/schema/index.ts";
import { parseBytes } from "../base/util/units.ts";
import { isRecord, parseJson } from "../base/util/values.ts";
import type { ModelName } from "./connected.ts";

/** Returns a parser of integers of at least `min`. */
export function integer(min: number): (text: string) => number {
  return (text) => {
    const value = /^-?\d+$/.test(text) ? Number(text) : Number.NaN;
    if (!(Number.isSafeInteger(value) && value >= min)) throw new InvalidArgumentError(`Expected a whole number from ${min}.`);
    return value;
  };
}

/** Parses a number of at least 0. */
export function nonNegative(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !(value >= 0)) throw new InvalidArgumentError("Expected a number of at least 0.");
  return value;
}

/** Parses a number above 0 and below 1. */
export function fraction(text: string): number {
  const value = Number(text);
  if (!(value > 0 && value < 1)) throw new InvalidArgumentError("Expected a number above 0 and below 1.");
  return value;
}

/** Parses a size in bytes, with or without a decimal unit. */
export function parseSize(text: string): number {
  const bytes = parseBytes(text);
  if (bytes === null) throw new InvalidArgumentError("Expected a size such as 500MB or 20GB, or a number of bytes.");
  return bytes;
}

/** Adds a value of a repeatable option to its previous values. */
export function collected(text: string, previous: readonly string[]): string[] {
  return [...previous, text];
}

/** Parses `project/name`, or `name` in the project `default`. */
export function modelName(text: string): ModelName {
  const parts = text.split("/");
  const [project, name] = parts.length === 1 ? ["default", parts[0]] : parts;
  if (parts.length > 2 || !project || !name) throw new InvalidArgumentError("Expected project/name, or a name alone.");
  return { project, name };
}

/** Flags of the option for the variables of the chat template. */
export const TEMPLATE_KWARGS_OPTION = "--chat-template-kwargs <json>";
/** Description of {@link TEMPLATE_KWARGS_OPTION}. */
export const TEMPLATE_KWARGS_DESCRIPTION = `variables of the chat template, as a JSON object: '{"preserve_thinking":true}'`;

/** Parses a JSON object. */
export function jsonObjectArgument(text: string): JsonObject {
  const value = parseJson(text);
  if (isRecord(value)) return value as JsonObject;
  throw new InvalidArgumentError(`Expected a JSON object, such as '{"preserve_thinking":true}'.`);
}

/** Forms of the option `--base`. */
export const BASE_FORMS = "identifier, directory, .gguf file, hf:owner/name or ollama:name";
