import type { Engine } from "../../engine/port.ts";
import { UnsupportedError } from "../../errors.ts";

/**
 * A job's settings as the engine can carry them out: where it clips no gradients, unset means off.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` when such an engine is asked to clip.
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
