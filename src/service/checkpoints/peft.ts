import { readFile } from "node:fs/promises";
import { z } from "zod";
import { DataError, UnsupportedError } from "../../errors.ts";
import type { LoraConfig } from "../../schema/index.ts";

const empty = z.union([z.literal(false), z.null(), z.array(z.never()), z.record(z.string(), z.never())]).optional();

/** What of an `adapter_config.json` decides what an adapter computes. */
const adapterConfig = z.looseObject({
  peft_type: z.string(),
  r: z.int().min(1).max(256),
  lora_alpha: z.number().positive(),
  use_rslora: z.boolean().nullish(),
});

/** What leaves the base as it is. The others (pissa, olora, corda, loftq, …) start from a base that is not the one named. */
const initialization = z.union([z.boolean(), z.null(), z.enum(["gaussian", "eva", "orthogonal"])]).optional();

/** Settings that are carried out only at a value that changes nothing of what the adapter computes. */
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
 * Rank and alpha of an adapter in PEFT's layout. With `use_rslora` the scale is `alpha / √r`, so alpha becomes `alpha·√r`.
 *
 * @param path - Of its `adapter_config.json`.
 * @param where - What to call the file in messages.
 * @throws DataError `E_DATA` for a file that is none.
 * @throws UnsupportedError `E_UNSUPPORTED` for another kind of adapter, or a setting that changes what it computes; the message names it.
 */
export async function readAdapterConfig(path: string, where: string): Promise<Required<Pick<LoraConfig, "rank">> & { alpha: number }> {
  let parsed: unknown;
  try {
    parsed = JSON.parse(await readFile(path, "utf8"));
  } catch (cause) {
    throw new DataError(`${where}: expected JSON: ${(cause as Error).message}`, { cause, param: "from" });
  }
  const result = adapterConfig.safeParse(parsed);
  if (!result.success) {
    const [issue] = result.error.issues;
    throw new DataError(`${where}: ${issue?.path.join(".") ?? ""}: ${issue?.message ?? "invalid"}`, { param: "from" });
  }
  const { peft_type: kind, r: rank, lora_alpha: alpha, use_rslora: isRankStabilized, ...others } = result.data;
  if (kind !== "LORA") throw new UnsupportedError(`${where}: expected \`peft_type\` to be "LORA", got "${kind}"`, { param: "from" });
  for (const [name, neutral] of Object.entries(NEUTRAL)) {
    if (neutral.safeParse(others[name]).success) continue;
    throw new UnsupportedError(
      `${where}: \`${name}\` is not carried out: got ${JSON.stringify(others[name])}. Export the adapter without it, or merge it into its base and use that`,
      { param: "from" },
    );
  }
  return { rank, alpha: isRankStabilized === true ? alpha * Math.sqrt(rank) : alpha };
}
