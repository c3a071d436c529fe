/**
 * Coding agents' command-line tools, headless. `CODING_AGENTS` names a directory with their installation; without it the tests are skipped:
 *
 *   npm install --prefix ../agents @mariozechner/pi-coding-agent @openai/codex @anthropic-ai/claude-code opencode-ai
 *   (cd ../agents/node_modules/@anthropic-ai/claude-code && node install.cjs)
 *   (cd ../agents/node_modules/opencode-ai && node postinstall.mjs)
 *   CODING_AGENTS=../agents npx vitest run test/clients/coding-agents.test.ts
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { startService } from "../../src/service/index.ts";
import { loadTokenizer } from "../../src/text/tokenizer/index.ts";
import { startTestService } from "../service/support.ts";

const installation = process.env["CODING_AGENTS"];
const DIRECTORY = fileURLToPath(new URL("../../models/whetstone-tiny", import.meta.url));
const tokenizer = await loadTokenizer(DIRECTORY);
const CONTEXT = 400_000;
const DEADLINE_MS = 300_000;

/** Address of a service without a path, its key, and the model. */
interface Target {
  readonly url: string;
  readonly apiKey: string;
  readonly model: string;
}

interface CodingAgent {
  readonly command: string;
  readonly args: (target: Target, task: string) => readonly string[];
  readonly env: (target: Target) => Readonly<Record<string, string>>;
  /** Tool that runs a command in a shell, and the name of its argument. */
  readonly shell: readonly [name: string, argument: string];
}

const PI_APIS = { messages: "anthropic-messages", responses: "openai-responses", chat: "openai-completions" };

/** The agent `pi`, which has a provider for each API. */
const pi = (api: keyof typeof PI_APIS): CodingAgent => ({
  command: "pi",
  args: ({ model }, task) => ["-p", "--no-session", "--provider", api, "--model", model, task],
  env: () => ({ PI_OFFLINE: "1" }),
  shell: ["bash", "command"],
});

const AGENTS: Readonly<Record<string, CodingAgent>> = {
  "pi on messages": pi("messages"),
  "pi on responses": pi("responses"),
  "pi on chat completions": pi("chat"),
  "Codex on responses": {
    command: "codex",
    args: (_, task) => ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", task],
    env: ({ apiKey }) => ({ AGENT_KEY: apiKey }),
    shell: ["exec_command", "cmd"],
  },
  "opencode on chat completions": {
    command: "opencode",
    args: ({ model }, task) => ["run", "--model", `whetstone/${model}`, task],
    env: () => ({}),
    shell: ["bash", "command"],
  },
  "Claude Code on messages": {
    command: "claude",
    args: (_, task) => ["-p", task, "--allowedTools", "Bash(echo:*)"],
    env: ({ url, apiKey, model }) => ({
      ANTHROPIC_BASE_URL: url,
      ANTHROPIC_API_KEY: apiKey,
      ANTHROPIC_MODEL: model,
      ANTHROPIC_SMALL_FAST_MODEL: model,
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
      DISABLE_AUTOUPDATER: "1",
    }),
    shell: ["Bash", "command"],
  },
};

/** Writes the settings of all agents into a new home directory. */
async function createHome({ url, apiKey, model }: Target): Promise<string> {
  const home = await mkdtemp(join(tmpdir(), "whetstone-agents-"));
  onTestFinished(() => rm(home, { recursive: true, force: true, maxRetries: 5 }));
  const providers = Object.entries(PI_APIS).map(([name, api]) => {
    const baseUrl = name === "messages" ? url : `${url}/v1`;
    return [name, { baseUrl, api, apiKey, models: [{ id: model, contextWindow: CONTEXT, maxTokens: 200 }] }];
  });
  await mkdir(join(home, ".pi/agent"), { recursive: true });
  await writeFile(join(home, ".pi/agent/models.json"), JSON.stringify({ providers: Object.fromEntries(providers) }));
  const codex = [
    `model = ${JSON.stringify(model)}`,
    'model_provider = "whetstone"',
    "[model_providers.whetstone]",
    'name = "whetstone"',
    `base_url = "${url}/v1"`,
    'env_key = "AGENT_KEY"',
    'wire_api = "responses"',
  ];
  await mkdir(join(home, ".codex"));
  await writeFile(join(home, ".codex/config.toml"), `${codex.join("\n")}\n`);
  const opencode = {
    npm: "@ai-sdk/openai-compatible",
    name: "whetstone",
    options: { baseURL: `${url}/v1`, apiKey },
    models: { [model]: { name: model, limit: { context: CONTEXT, output: 200 } } },
  };
  await mkdir(join(home, ".config/opencode"), { recursive: true });
  await writeFile(join(home, ".config/opencode/opencode.json"), JSON.stringify({ provider: { whetstone: opencode } }));
  await mkdir(join(home, "work"));
  return home;
}

/** Runs an agent and returns its exit code and output. */
async function run(
  { command, args, env }: CodingAgent,
  target: Target,
  task: string,
): Promise<{ readonly code: unknown; readonly text: string }> {
  const home = await createHome(target);
  const child = spawn(join(installation!, "node_modules/.bin", command), args(target, task), {
    cwd: join(home, "work"),
    env: { PATH: process.env["PATH"], HOME: home, ...env(target) },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: DEADLINE_MS,
  });
  let text = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data: Buffer) => (text += data.toString()));
  const [code] = await once(child, "close");
  return { code, text };
}

const WORD = "whetstone-7319";

describe.skipIf(installation === undefined)("a coding agent", () => {
  it.each(Object.keys(AGENTS))(
    "%s runs a tool and answers with its result, each prompt after the ids of the last",
    async (name) => {
      const agent = AGENTS[name]!;
      const [tool, argument] = agent.shell;
      const call = `<tool_call>{"name": "${tool}",  "arguments": {"${argument}": "echo ${WORD}"}}</tool_call>`;
      const sampled: { readonly prompt: number[]; readonly ids: number[] }[] = [];
      const { service } = await startTestService({
        engine: {
          bases: [{ id: "long", directory: DIRECTORY, vocabularySize: tokenizer.vocabularySize, contextLength: CONTEXT, parameters: 1 }],
          script: ({ prompt }) => {
            const text = tokenizer.decode(prompt);
            // An agent may also ask for a title, without tools.
            const hasTools = text.includes(`"${tool}"`);
            const hasResult = text.slice(text.lastIndexOf("</tool_call>")).includes(WORD) && text.includes(call.slice(0, 30));
            const ids = [...tokenizer.encode(hasResult ? "The tool printed it." : `I will print it. ${call}`), tokenizer.eosTokenIds[0]!];
            if (hasTools) sampled.push({ prompt: [...prompt], ids });
            return ids;
          },
        },
      });
      const { code, text } = await run(agent, { url: service.url, apiKey: service.apiKey, model: "long" }, "print it");
      expect([code, text]).toEqual([0, expect.stringContaining("The tool printed it.")]);
      expect(sampled).toHaveLength(2);
      const [first, second] = sampled as [(typeof sampled)[0], (typeof sampled)[0]];
      const known = [...first.prompt, ...first.ids];
      expect(second.prompt.slice(0, known.length)).toEqual(known);
    },
    DEADLINE_MS,
  );
});

describe.skipIf(installation === undefined)("a coding agent with the shipped model", () => {
  let directory: string;
  let service: Awaited<ReturnType<typeof startService>>;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), "whetstone-agents-base-"));
    const base = join(directory, "long");
    await cp(DIRECTORY, base, { recursive: true });
    const config = JSON.parse(await readFile(join(base, "config.json"), "utf8")) as object;
    await writeFile(join(base, "config.json"), JSON.stringify({ ...config, max_position_embeddings: CONTEXT }));
    service = await startService({ dataDir: join(directory, "data"), baseModels: { long: base } });
  }, DEADLINE_MS);
  afterAll(async () => {
    await service.close();
    await rm(directory, { recursive: true });
  });

  it.each(Object.keys(AGENTS))(
    "%s ends without an error",
    async (name) => {
      const { code, text } = await run(AGENTS[name]!, { url: service.url, apiKey: service.apiKey, model: "long" }, "say hi");
      expect([code, text]).toEqual([0, expect.stringMatching(/\S/u)]);
    },
    DEADLINE_MS,
  );
});
