/** Options of `whetstone serve` that select the engine and the upstream. */
import { InvalidArgumentError, Option, type Command } from "commander";
import { DEVICE_CHOICES, WEIGHT_PRECISIONS } from "../engine/engine-info.ts";
import { createTinkerEngine, type DeviceChoice, type Engine, type WeightPrecision } from "../engine/index.ts";
import { ConfigError } from "../base/errors.ts";
import { parseBaseSource, toLocalBaseSource } from "../base/util/base-model.ts";
import { parseSize } from "./arguments.ts";
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
  readonly offline?: boolean;
  readonly hubCache?: string;
  readonly upstream?: string;
  readonly upstreamKeyEnv?: string;
  readonly upstreamModel: Readonly<Record<string, string>>;
  readonly upstreamAdapters?: boolean;
  readonly upstreamDataDir?: string;
  readonly upstreamRefuse: readonly string[];
  readonly upstreamAccept: readonly string[];
}

/** Names of the device options on the command line. */
export const DEVICE_FLAGS = { device: "--device", deviceMemory: "--device-memory", weightPrecision: "--weight-precision" } as const;

/** Returns a parser of a repeatable option `key=value`. */
function pairs(toValue: (text: string) => string): (text: string, before: Readonly<Record<string, string>>) => Record<string, string> {
  return (text, before) => {
    const at = text.indexOf("=");
    if (at < 1 || at === text.length - 1) throw new InvalidArgumentError("Expected two names with = between them.");
    return { ...before, [text.slice(0, at)]: toValue(text.slice(at + 1)) };
  };
}

/** Adds the options to a command. */
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
    .option(
      "--base-root <path>",
      "directory from which base models may be given as paths; repeatable",
      (path: string, before: readonly string[]) => [...before, path],
      [],
    )
    .addOption(new Option("--device <name>", "device of the embedded engine (default: WHETSTONE_DEVICE, or cpu)").choices(DEVICE_CHOICES))
    .option(
      "--device-memory <size>",
      "memory of the GPU, such as 24GB; with more, training recomputes fewer layers of large models (default: WHETSTONE_DEVICE_MEMORY, or 8GB)",
      parseSize,
    )
    .addOption(
      new Option(
        "--weight-precision <type>",
        "type in which the GPU stores weights that are not trained; float16 takes half the memory (default: WHETSTONE_WEIGHT_PRECISION, or float32)",
      ).choices(WEIGHT_PRECISIONS),
    )
    .option("--offline", "use only cached base models of the model hub")
    .option("--hub-cache <path>", "cache of base models from the model hub (default: HF_HUB_CACHE, or hub in the data directory)")
    .option("--upstream <url>", "OpenAI-compatible server, such as vLLM, that samples instead of the engine")
    .option("--upstream-key-env <name>", "environment variable with the key of the upstream")
    .option(
      "--upstream-model <id=name>",
      "base model that the upstream samples, and its name there (default: all models that it lists); repeatable",
      pairs((name) => name),
      {},
    )
    .option("--upstream-adapters", "load trained adapters into the upstream and sample them there, too")
    .option("--upstream-data-dir <path>", "the data directory as the upstream sees it (default: the same path)")
    .option(
      "--upstream-refuse <field>",
      "field that the upstream accepts and ignores: reject it; repeatable",
      (field: string, before: readonly string[]) => [...before, field],
      [],
    )
    .option(
      "--upstream-accept <field>",
      "field that the upstream supports without confirming it: forward it; repeatable",
      (field: string, before: readonly string[]) => [...before, field],
      [],
    );
}

/**
 * Creates the engine selected by the options; undefined for the embedded engine, which the service starts itself.
 *
 * @throws ConfigError `E_CONFIG` for contradictory options or invalid values, and if a named environment variable is empty.
 */
export async function engineOf(options: EngineFlags): Promise<Engine | undefined> {
  const { engine, engineUrl: url, engineKeyEnv: keyVariable, engineServer: server, engineEncoding: encoding } = options;
  if (engine === "onnx") {
    const given = { "--engine-url": url, "--engine-key-env": keyVariable, "--engine-server": server, "--engine-encoding": encoding };
    for (const [param, value] of Object.entries(given))
      if (value !== undefined) throw new ConfigError(`${param} is for \`--engine tinker\`; the embedded engine has no server`, { param });
    chooseDevice(options, DEVICE_FLAGS);
    return undefined;
  }
  const local = {
    "--base-root": options.baseRoot.length > 0,
    "--device": options.device,
    "--device-memory": options.deviceMemory,
    "--weight-precision": options.weightPrecision,
    "--offline": options.offline,
    "--hub-cache": options.hubCache,
  };
  for (const [param, value] of Object.entries(local)) {
    if (value !== undefined && value !== false)
      throw new ConfigError(`${param} is for the embedded engine; a Tinker server has its own base models`, { param });
  }
  if (url === undefined) throw new ConfigError("`--engine tinker` needs the address of a server: --engine-url", { param: "--engine-url" });
  for (const [id, source] of Object.entries(options.baseModel)) {
    if (parseBaseSource(source, "--base-model").kind !== "path")
      throw new ConfigError(
        `With \`--engine tinker\`, --base-model names a directory with configuration and tokenizer, got ${id}=${source}`,
        {
          param: "--base-model",
        },
      );
  }
  const apiKey = process.env[keyVariable ?? "TINKER_API_KEY"] || undefined;
  if (keyVariable !== undefined && apiKey === undefined)
    throw new ConfigError(`--engine-key-env names ${keyVariable}, and that variable is empty`, { param: "--engine-key-env" });
  return createTinkerEngine({ url, apiKey, server, encoding, baseModels: { [SHIPPED_BASE]: shippedDirectory(), ...options.baseModel } });
}

/**
 * Returns the upstream selected by the options; undefined if they select no upstream.
 *
 * @throws ConfigError `E_CONFIG` for upstream options without `--upstream`, and if a named environment variable is empty.
 */
export function upstreamOf(options: EngineFlags): UpstreamOptions | undefined {
  const {
    upstream: url,
    upstreamKeyEnv: keyVariable,
    upstreamModel,
    upstreamAdapters,
    upstreamDataDir,
    upstreamRefuse,
    upstreamAccept,
  } = options;
  if (url === undefined) {
    const given = { "--upstream-key-env": keyVariable, "--upstream-adapters": upstreamAdapters, "--upstream-data-dir": upstreamDataDir };
    const names = Object.entries(given).flatMap(([name, value]) => (value === undefined ? [] : [name]));
    if (Object.keys(upstreamModel).length > 0) names.push("--upstream-model");
    if (upstreamRefuse.length > 0) names.push("--upstream-refuse");
    if (upstreamAccept.length > 0) names.push("--upstream-accept");
    if (names.length > 0) throw new ConfigError(`${names[0]} needs the address of an upstream: --upstream`, { param: names[0] });
    return undefined;
  }
  const apiKey = keyVariable === undefined ? undefined : process.env[keyVariable] || undefined;
  if (keyVariable !== undefined && apiKey === undefined)
    throw new ConfigError(`--upstream-key-env names ${keyVariable}, and that variable is empty`, { param: "--upstream-key-env" });
  return {
    url,
    apiKey,
    models: Object.keys(upstreamModel).length > 0 ? upstreamModel : undefined,
    adapters: upstreamAdapters,
    dataDir: upstreamDataDir,
    refusedFields: upstreamRefuse,
    supportedFields: upstreamAccept,
  };
}
