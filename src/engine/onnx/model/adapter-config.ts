/** `adapter_config.json`, the settings of an adapter in PEFT layout. */
import { readFile } from "node:fs/promises";
import { z } from "zod";
import { DataError, UnsupportedError } from "../../../base/errors.ts";
import type { Adapter } from "./parameters.ts";

/** Values of a setting that is not used. */
const empty = z.union([z.literal(false), z.null(), z.array(z.never()), z.record(z.string(), z.never())]).optional();

/** Fields of `adapter_config.json` that determine the computation of an adapter. */
const adapterConfig = z.looseObject({
  peft_type: z.string(),
  r: z.int().min(1).max(256),
  lora_alpha: z.number().positive(),
  use_rslora: z.boolean().nullish(),
});

/** Initializations that keep the base weights unchanged. Others (pissa, olora, corda, loftq, …) modify the base. */
const initialization = z.union([z.boolean(), z.null(), z.enum(["gaussian", "eva", "orthogonal"])]).optional();

/** Settings that are supported only with a value that does not change the adapter's computation. */
const NEUTRAL: Readonly<Record<string, z.ZodType>> = {
  bias: z.literal("none").optional(),
  use_dora: empty,
  lora_bias: empty,
  fan_in_fan_out: empty,
  modules_to_save: empty,
  rank_pattern: empty,
  alpha_pattern: empty,
  trainable_token_indices: empty,
  layer_replication: empty,
  alora_invocation_tokens: z.null().optional(),
  init_lora_weights: initialization,
};

/**
 * Reads rank and alpha of an adapter in PEFT layout. With `use_rslora` the scale is `alpha / √r`, so the returned alpha is `alpha·√r`.
 *
 * @param path - Path of `adapter_config.json`.
 * @param where - Name of the file in messages.
 * @param param - Name of the request's field or the option that names the adapter, for errors.
 * @throws DataError `E_DATA` for an invalid file.
 * @throws UnsupportedError `E_UNSUPPORTED` for another adapter type, or a setting that changes its computation; the message names it.
 */
export async function readAdapterConfig(path: string, where: string, param: string | null = null): Promise<Adapter> {
  let parsed: unknown;
  try {
    parsed = JSON.parse(await readFile(path, "utf8"));
  } catch (cause) {
    throw new DataError(`${where}: expected JSON: ${(cause as Error).message}`, { cause, param });
  }
  const result = adapterConfig.safeParse(parsed);
  if (!result.success) {
    const [issue] = result.error.issues;
    throw new DataError(`${where}: ${issue?.path.join(".") ?? ""}: ${issue?.message ?? "invalid"}`, { param });
  }
  const { peft_type: kind, r: rank, lora_alpha: alpha, use_rslora: isRankStabilized, ...others } = result.data;
  if (kind !== "LORA") throw new UnsupportedError(`${where}: expected \`peft_type\` to be "LORA", got "${kind}"`, { param });
  for (const [name, neutral] of Object.entries(NEUTRAL)) {
    if (neutral.safeParse(others[name]).success) continue;
    throw new UnsupportedError(
      `${where}: \`${name}\` is not supported: got ${JSON.stringify(others[name])}. Export the adapter without it, or merge it into its base and use that`,
      { param },
    );
  }
  return { rank, alpha: isRankStabilized === true ? alpha * Math.sqrt(rank) : alpha };
}
