import type { Engine } from "../../engine/port.ts";
import { UnsupportedError } from "../../errors.ts";

/**
 * Adapts a job's settings to the engine: if the engine does not clip gradients, an unset `max_grad_norm` becomes 0 (off).
 *
 * @throws UnsupportedError `E_UNSUPPORTED` if clipping is requested from an engine that does not support it.
 */
export function offeredClipping<T extends { readonly max_grad_norm?: number | null | undefined }>(
  settings: T | null,
  engine: Engine,
): T | null {
  const { name, clipsGradients = true } = engine.capabilities();
  if (clipsGradients) return settings;
  if ((settings?.max_grad_norm ?? 0) > 0) {
    throw new UnsupportedError(`The engine "${name}" of this service does not clip gradients; leave \`max_grad_norm\` out, or send 0`, {
      param: "experimental_config.max_grad_norm",
    });
  }
  return { ...(settings as T), max_grad_norm: 0 };
}
