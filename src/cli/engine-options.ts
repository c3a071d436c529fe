/** Options of `whetstone serve` that select the engine and the upstream. */
import { InvalidArgumentError, Option, type Command } from "commander";
import { DEVICE_CHOICES, ROLLOUT_PRECISIONS, WEIGHT_PRECISIONS } from "../engine/engine-info.ts";
import { createTinkerEngine, type DeviceChoice, type Engine, type RolloutPrecision, type WeightPrecision } from "../engine/index.ts";
import { ConfigError } from "../base/errors.ts";
import { parseBaseSource, toLocalBaseSource } from "../base/util/base-model.ts";
import { collected, parseSize } from "./arguments.ts";
import type { UpstreamOptions } from "../service/index.ts";
import { chooseDevice } from "../service/models/device.ts";
import { SHIPPED_BASE, shippedDirectory } from "../service/models/shipped-base.ts";

/** Parsed options of {@link addEngineOptions}. */
export interface EngineFlags {
  readonly engine: "onnx" | "tinker";
  readonly engineUrl?: string;
  readonly engineKeyEnv?: string;
  readonly engineServer?: "tinker" | "skyrl";
  readonly engineEncoding?: "json" | "protobuf";
  readonly baseModel: Readonly<Record<string, string>>;
  readonly baseRoot: readonly string[];
  readonly device?: DeviceChoice;
  readonly deviceMemory?: number;
  readonly weightPrecision?: WeightPrecision;
  readonly rolloutPrecision?: RolloutPrecision;
  readonly offline?: boolean;
  readonly hubCache?: string;
  readonly upstream: readonly string[];
  readonly upstreamKeyEnv?: string;
  readonly upstreamModel: Readonly<Record<string, string>>;
  readonly upstreamAdapters?: boolean;
  readonly upstreamDataDir?: string;
  readonly upstreamRefuse: readonly string[];
  readonly upstreamAccept: readonly string[];
}

/** Names of the device options on the command line. */
export const DEVICE_FLAGS = {
  device: "--device",
  deviceMemory: "--device-memory",
  weightPrecision: "--weight-precision",
  rolloutPrecision: "--rollout-precision",
} as const;

/** Returns a parser of a repeatable option `key=value`. @param toValue - Parses the value. */
function pairs(toValue: (text: string) => string): (text: string, previous: Readonly<Record<string, string>>) => Record<string, string> {
  return (text, previous) => {
    const separator = text.indexOf("=");
    if (separator < 1 || separator === text.length - 1) throw new InvalidArgumentError("Expected two names with = between them.");
    return { ...previous, [text.slice(0, separator)]: toValue(text.slice(separator + 1)) };
  };
}

/** Adds the options of the engine and the upstream to a command. */
export function addEngineOptions(command: Command): Command {
  return command
    .addOption(new Option("--engine <name>", "engine that samples and trains").choices(["onnx", "tinker"]).default("onnx"))
    .option("--engine-url <url>", "address of the Tinker server")
    .option("--engine-key-env <name>", "environment variable with the key of the Tinker server (default: TINKER_API_KEY)")
    .addOption(new Option("--engine-server <kind>", "kind of Tinker server (default: detected)").choices(["tinker", "skyrl"]))
    .addOption(
      new Option("--engine-encoding <name>", "encoding of requests to the Tinker server (default: json)").choices(["json", "protobuf"]),
    )
    .option(
      "--base-model <id=source>",
      "additional base model: directory, .gguf file, hf:owner/name or ollama:name; repeatable",
      pairs((source) => toLocalBaseSource(source, "--base-model")),
      {},
    )
    .option("--base-root <path>", "directory from which base models may be given as paths; repeatable", collected, [])
    .addOption(new Option("--device <name>", "device of the embedded engine (default: WHETSTONE_DEVICE, or cpu)").choices(DEVICE_CHOICES))
    .option(
      "--device-memory <size>",
      "memory of the GPU, such as 24GB; with more, training recomputes fewer layers of large models (default: WHETSTONE_DEVICE_MEMORY, or 8GB)",
      parseSize,
    )
    .addOption(
      new Option(
        "--weight-precision <type>",
        "type in which weights that are not trained are stored: float16 on a GPU, int8 or int4 on the processor (default: WHETSTONE_WEIGHT_PRECISION, or float32)",
      ).choices(WEIGHT_PRECISIONS),
    )
    .addOption(
      new Option(
        "--rollout-precision <type>",
        "number format of sampling on the processor; int8 is faster for few requests of models with more than 16 M weights or with weights in int8 or int4 (default: WHETSTONE_ROLLOUT_PRECISION, or float32)",
      ).choices(ROLLOUT_PRECISIONS),
    )
    .option("--offline", "use only cached base models of the model hub")
    .option("--hub-cache <path>", "cache of base models from the model hub (default: HF_HUB_CACHE, or hub in the data directory)")
    .option("--upstream <url>", "OpenAI-compatible server, such as vLLM, that samples instead of the engine; repeatable", collected, [])
    .option("--upstream-key-env <name>", "environment variable with the key of the upstream")
    .option(
      "--upstream-model <id=name>",
      "base model that the upstream samples, and its name there (default: all models that it lists); repeatable",
      pairs((name) => name),
      {},
    )
    .option("--upstream-adapters", "load trained adapters into the upstream and sample them there, too")
    .option("--upstream-data-dir <path>", "the data directory as the upstream sees it (default: the same path)")
    .option("--upstream-refuse <field>", "field that the upstream accepts and ignores: reject it; repeatable", collected, [])
    .option("--upstream-accept <field>", "field that the upstream supports without confirming it: forward it; repeatable", collected, []);
}

/** Throws ConfigError `E_CONFIG` for the first option that is given; undefined and false count as not given. */
function refuseGiven(options: Readonly<Record<string, string | number | boolean | undefined>>, reason: string): void {
  const name = Object.keys(options).find((param) => options[param] !== undefined && options[param] !== false);
  if (name !== undefined) throw new ConfigError(`${name} ${reason}`, { param: name });
}

/** Returns the key in an environment variable. @throws ConfigError `E_CONFIG` if the variable is empty. */
function keyIn(variable: string, param: string): string {
  const key = process.env[variable];
  if (key) return key;
  throw new ConfigError(`${param} names ${variable}, and that variable is empty`, { param });
}

/**
 * Creates the engine selected by the options; undefined for the embedded engine, which the service starts itself.
 *
 * @throws ConfigError `E_CONFIG` for contradictory options or invalid values, and if a named environment variable is empty.
 */
export async function engineOf(options: EngineFlags): Promise<Engine | undefined> {
  const { engine, engineUrl: url, engineKeyEnv: keyVariable, engineServer: server, engineEncoding: encoding } = options;
  if (engine === "onnx") {
    const remote = { "--engine-url": url, "--engine-key-env": keyVariable, "--engine-server": server, "--engine-encoding": encoding };
    refuseGiven(remote, "is for `--engine tinker`; the embedded engine has no server");
    chooseDevice(options, DEVICE_FLAGS);
    return undefined;
  }
  const embedded = {
    "--base-root": options.baseRoot.length > 0,
    "--device": options.device,
    "--device-memory": options.deviceMemory,
    "--weight-precision": options.weightPrecision,
    "--rollout-precision": options.rolloutPrecision,
    "--offline": options.offline,
    "--hub-cache": options.hubCache,
  };
  refuseGiven(embedded, "is for the embedded engine; a Tinker server has its own base models");
  if (url === undefined) throw new ConfigError("`--engine tinker` needs the address of a server: --engine-url", { param: "--engine-url" });
  for (const [id, source] of Object.entries(options.baseModel)) {
    if (parseBaseSource(source, "--base-model").kind === "path") continue;
    const expected = "With `--engine tinker`, --base-model names a directory with configuration and tokenizer";
    throw new ConfigError(`${expected}, got ${id}=${source}`, { param: "--base-model" });
  }
  const apiKey = keyVariable === undefined ? process.env["TINKER_API_KEY"] || undefined : keyIn(keyVariable, "--engine-key-env");
  return createTinkerEngine({ url, apiKey, server, encoding, baseModels: { [SHIPPED_BASE]: shippedDirectory(), ...options.baseModel } });
}

/**
 * Returns the upstream selected by the options; undefined if they select no upstream.
 *
 * @throws ConfigError `E_CONFIG` for upstream options without `--upstream`, and if a named environment variable is empty.
 */
export function upstreamOf(options: EngineFlags): UpstreamOptions | undefined {
  const { upstream: urls, upstreamKeyEnv: keyVariable, upstreamModel, upstreamAdapters, upstreamDataDir } = options;
  const { upstreamRefuse, upstreamAccept } = options;
  const hasModels = Object.keys(upstreamModel).length > 0;
  const [firstUrl, ...otherUrls] = urls;
  if (firstUrl === undefined) {
    const upstreamOptions = {
      "--upstream-key-env": keyVariable,
      "--upstream-adapters": upstreamAdapters,
      "--upstream-data-dir": upstreamDataDir,
      "--upstream-model": hasModels,
      "--upstream-refuse": upstreamRefuse.length > 0,
      "--upstream-accept": upstreamAccept.length > 0,
    };
    refuseGiven(upstreamOptions, "needs the address of an upstream: --upstream");
    return undefined;
  }
  return {
    url: otherUrls.length === 0 ? firstUrl : urls,
    apiKey: keyVariable === undefined ? undefined : keyIn(keyVariable, "--upstream-key-env"),
    models: hasModels ? upstreamModel : undefined,
    adapters: upstreamAdapters,
    dataDir: upstreamDataDir,
    refusedFields: upstreamRefuse,
    supportedFields: upstreamAccept,
  };
}
