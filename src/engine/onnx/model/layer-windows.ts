/**
 * Sliding windows of attention: parsing of `sliding_window`, `use_sliding_window`, `layer_types` and their companions in `config.json`.
 * Defaults of missing keys are the ones of transformers.
 */
import { DataError, UnsupportedError } from "../../../base/errors.ts";

/** Sliding window of some layers. A token at position `p` attends to the positions from `p − size + 1` to `p`. */
export interface SlidingWindow {
  /** Tokens that a token attends to, its own included; at least 1. */
  readonly size: number;
  /** Indices of the layers with the window, ascending; at least one. */
  readonly layers: readonly number[];
}

/** Rule for the sliding window: its size, and the layers that have it. */
export interface WindowRule {
  /** Default of `sliding_window`; null = no window. */
  readonly defaultSize: number | null;
  /** Whether the window applies only with `use_sliding_window: true`. */
  readonly needsUseSlidingWindow: boolean;
  /** Whether `layer_types` selects the layers with a window. If not, the key must agree with `layers`. */
  readonly readsLayerTypes: boolean;
  /**
   * Layers with a window, unless `layer_types` selects them: all; the layers without rotary embedding; the layers from `max_window_layers`
   * on; or all but every n-th, where `key` names the key of the file with n.
   */
  readonly layers: "all" | "unrotated" | "from-max-window-layers" | { readonly exceptEvery: number; readonly key?: string | undefined };
}

/** Parsed `config.json` of a model, or an object in it. */
export type Raw = Readonly<Record<string, unknown>>;

/** Sizes of a model that decide about its windows. */
export interface WindowedModel {
  readonly layers: number;
  readonly contextLength: number;
  readonly unrotatedLayers: readonly number[];
  /** Whether layers with a window have another rotary embedding; then even a window as long as the context is kept. */
  readonly hasLocalRope: boolean;
}

/** Returns whether a layer has a window. */
export function isWindowed({ window }: { readonly window: SlidingWindow | null }, layer: number): boolean {
  return window?.layers.includes(layer) ?? false;
}

/**
 * Parses the sliding window of a `config.json`.
 *
 * @param where - Name of the file for error messages.
 * @param rule - Rule of the architecture; null if it has no windows.
 * @returns Null if no layer has a window that is shorter than the context.
 * @throws UnsupportedError `E_UNSUPPORTED` for windows that the architecture does not have, and other types of layers.
 * @throws DataError `E_DATA` for a value of another type.
 */
export function parseWindow(raw: Raw, where: string, rule: WindowRule | null, model: WindowedModel): SlidingWindow | null {
  const size = rule === null ? noWindow(raw, where) : windowSize(raw, where, rule);
  const types = layerTypes(raw, where, model.layers);
  const layers = size === null || rule === null ? [] : windowedLayers(raw, where, rule, types, model);
  const namedLayers = types?.flatMap((type, layer) => (type === SLIDING ? [layer] : [])) ?? layers;
  if (namedLayers.join() !== layers.join())
    throw new UnsupportedError(
      `${where}: "layer_types" names layers ${namedLayers.join(", ") || "(none)"} with a window, expected ${layers.join(", ") || "none"} by the other settings of this architecture`,
    );
  if (size === null || layers.length === 0) return null;
  const hasNoEffect = size >= model.contextLength && !model.hasLocalRope;
  return hasNoEffect ? null : { size, layers };
}

/** Type of a layer with a window in `layer_types`. */
const SLIDING = "sliding_attention";
/** Types of a layer without a window. */
const FULL: readonly unknown[] = ["full_attention", "attention"];

/** Returns null for an architecture without windows. @throws UnsupportedError `E_UNSUPPORTED` if the file has a window nevertheless. */
function noWindow(raw: Raw, where: string): null {
  const value = raw["sliding_window"] ?? null;
  if (value !== null)
    throw new UnsupportedError(`${where}: "sliding_window": ${shown(value)} is not supported in this architecture; only null is`);
  return null;
}

/** Returns the size of the window; null if the model has none. */
function windowSize(raw: Raw, where: string, { defaultSize, needsUseSlidingWindow }: WindowRule): number | null {
  if (needsUseSlidingWindow && raw["use_sliding_window"] !== true) return null;
  const size = raw["sliding_window"] === undefined ? defaultSize : raw["sliding_window"];
  if (size === null || (typeof size === "number" && Number.isInteger(size) && size >= 1)) return size;
  throw new DataError(`${where}: expected "sliding_window" to be a whole number from 1 or null, got ${shown(size)}`);
}

/** Returns `layer_types`, checked; null if the key is missing. */
function layerTypes(raw: Raw, where: string, layers: number): readonly unknown[] | null {
  const types = raw["layer_types"] ?? null;
  if (types === null) return null;
  if (!Array.isArray(types) || types.length !== layers)
    throw new DataError(`${where}: expected "layer_types" to be ${layers} types of layers, got ${shown(types)}`);
  const unknown: unknown = types.find((type) => type !== SLIDING && !FULL.includes(type));
  if (unknown !== undefined)
    throw new UnsupportedError(`${where}: "layer_types": ${shown(unknown)} is not supported; "full_attention" and "${SLIDING}" are`);
  return types;
}

/** Returns the layers with a window, by `layer_types` or else by the rule of the architecture. */
function windowedLayers(
  raw: Raw,
  where: string,
  { layers: rule, readsLayerTypes }: WindowRule,
  types: readonly unknown[] | null,
  model: WindowedModel,
): number[] {
  const all = Array.from({ length: model.layers }, (_, layer) => layer);
  if (types !== null && readsLayerTypes) return all.filter((layer) => types[layer] === SLIDING);
  switch (rule) {
    case "all":
      return all;
    case "unrotated":
      return [...model.unrotatedLayers];
    case "from-max-window-layers": {
      const firstWindowed = wholeNumber(raw, where, "max_window_layers", 28, 0);
      return all.filter((layer) => layer >= firstWindowed);
    }
    default: {
      const { exceptEvery, key } = rule;
      const interval = key === undefined ? exceptEvery : wholeNumber(raw, where, key, exceptEvery, 1);
      return all.filter((layer) => (layer + 1) % interval !== 0);
    }
  }
}

/** Returns a whole number of the file. @throws DataError `E_DATA` for another value, or a number below `min`. */
export function wholeNumber(raw: Raw, where: string, key: string, fallback: number, min: number): number {
  const value = raw[key] ?? fallback;
  if (typeof value === "number" && Number.isInteger(value) && value >= min) return value;
  throw new DataError(`${where}: expected "${key}" to be a whole number from ${min}, got ${shown(value)}`);
}

/** Formats a value of the file for error messages, with at most 100 characters. */
export function shown(value: unknown): string {
  return String(JSON.stringify(value)).slice(0, 100);
}
