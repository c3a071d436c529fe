/** Services of the suite, each started at its first use. */
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startService, type RunningService, type ServiceOptions } from "../../src/service/index.ts";
import { createScriptedEngine } from "../../src/testing/index.ts";
import { MODEL_DIRECTORY, spelled, tokenizer } from "../service/chat/support.ts";

/**
 * `plain`: the embedded engine and the shipped model, every option at its default. `open`: the same with every option of the chat
 * routes that allows more requests. `parrot`: a model that repeats text from its last message, with a reasoning parser.
 * `bare`: the same without any parser. `small`: the same with a limit of two choices.
 */
export type ServerKind = "plain" | "open" | "parrot" | "bare" | "small";

/** Address and key of a service. */
export interface Address {
  readonly url: string;
  readonly apiKey: string;
}

/** Additional base models of the `open` service. */
export const CONFIGURED = "configured";
export const TEMPLATELESS = "templateless";

const silent = { info: () => undefined, warn: () => undefined, error: () => undefined };
const directories: string[] = [];
const started = new Map<ServerKind, Promise<RunningService>>();

async function temporaryDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "whetstone-conformance-"));
  directories.push(directory);
  return directory;
}

/** Creates a copy of the shipped model with one changed file. */
async function variant(file: string, edit: (value: Record<string, unknown>) => object): Promise<string> {
  const directory = await temporaryDirectory();
  await cp(MODEL_DIRECTORY, directory, { recursive: true });
  const path = join(directory, file);
  await writeFile(path, JSON.stringify(edit(JSON.parse(await readFile(path, "utf8")))));
  return directory;
}

/**
 * Returns a model that repeats the text after `say:` in the last message, letter by letter; `hang:` waits before every token until
 * the request is aborted, `fail:` fails before the first token, `break:` before the third.
 */
function parrotEngine() {
  const asked = (prompt: Int32Array): string => {
    const turns = tokenizer.decode(prompt).split("<|user|>");
    return turns.at(-1)!.split("<|end|>")[0]!;
  };
  const said = (prompt: Int32Array): string => /^say:(.*)$/su.exec(asked(prompt))?.[1] ?? "hello there";
  const requests = new Map<AbortSignal | undefined, string>();
  return createScriptedEngine({
    bases: [{ id: "parrot", directory: MODEL_DIRECTORY, vocabularySize: tokenizer.vocabularySize, contextLength: 4096, parameters: 1 }],
    script: ({ prompt }) => spelled(said(prompt)),
    before: async ({ verb, detail }, { signal }) => {
      if (verb === "sample") requests.set(signal, asked((detail as { readonly prompt: Int32Array }).prompt));
      if (verb !== "sampleToken") return;
      const request = requests.get(signal) ?? "";
      if (request === "fail:" || (request === "break:" && detail === 2)) throw new Error("A secret of the engine");
      if (request === "hang:")
        await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason as Error), { once: true }));
    },
  });
}

async function optionsOf(kind: ServerKind): Promise<ServiceOptions> {
  switch (kind) {
    case "plain":
      return {};
    case "open":
      return {
        baseModels: {
          [CONFIGURED]: await variant("generation_config.json", (config) => ({ ...config, temperature: 0.5, max_new_tokens: 4 })),
          [TEMPLATELESS]: await variant("tokenizer_config.json", (config) => ({ ...config, chat_template: undefined })),
        },
        limits: {
          chat: {
            trustRequestTemplates: true,
            priorityScheduling: true,
            maxTopLogprobs: 1_000_000,
            alwaysStreamUsage: true,
            returnTokensAsTokenIds: true,
          },
        },
      };
    case "parrot":
      return { engine: parrotEngine(), limits: { chat: { reasoningParser: "think" } } };
    case "bare":
      return { engine: parrotEngine(), limits: { chat: { toolParser: "none" } } };
    case "small":
      return { engine: parrotEngine(), limits: { chat: { maxRunningChoices: 2 } } };
  }
}

async function start(kind: ServerKind): Promise<RunningService> {
  return startService({ logger: silent, dataDir: await temporaryDirectory(), ...(await optionsOf(kind)) });
}

/** Returns the service of a kind. */
export async function serviceOf(kind: ServerKind): Promise<Address> {
  let service = started.get(kind);
  if (service === undefined) started.set(kind, (service = start(kind)));
  return service;
}

/** Closes all services and removes their directories. */
export async function closeServices(): Promise<void> {
  for (const service of started.values()) await (await service).close({ graceMs: 0 });
  started.clear();
  for (const directory of directories.splice(0)) await rm(directory, { recursive: true, force: true });
}
