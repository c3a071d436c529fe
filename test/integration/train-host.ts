/** A training run in a process of its own, to be killed: `train-host.ts <url> <key> <run directory> <settings as JSON>`. */
import { defineEnvironment, reward } from "whetstone/environment";
import { connect, trajectory } from "whetstone";
import { trainRl } from "whetstone/train";

/** Settings of a test. */
export interface HostSettings {
  readonly name: string;
  readonly steps: number;
  readonly maxStepsOffPolicy: number;
  /** Whether the run uses every option that selects its training data. @default false */
  readonly isSelective?: boolean | undefined;
  /** The process kills itself so many milliseconds after the run has written an event of this number. @default never */
  readonly death?: { readonly seq: number; readonly delayMs: number } | undefined;
}

const [, , baseUrl = "", apiKey = "", runDir = "", settings = "{}"] = process.argv;
const { name, steps, maxStepsOffPolicy, isSelective = false, death } = JSON.parse(settings) as HostSettings;

const environment = defineEnvironment<{ readonly id: string; readonly text: string }>({
  name: "noise",
  scenarios: {
    train: (index) => ({ id: `train-${index}`, text: String.fromCharCode(97 + (index % 26)).repeat(3) }),
    eval: [{ id: "eval-0", text: "xyz" }],
  },
  async rollout({ text }, { policy, sampling }) {
    const t = trajectory({ messages: [{ role: "user", content: `Tell me about ${text}` }] });
    await t.sample(policy, { maxCompletionTokens: 8, ...sampling });
    return t;
  },
  // Nothing to be learned, so that no group ever becomes constant.
  rewards: [
    reward("noise", ({ trajectory: { choices } }) => ((choices[0]?.token_ids ?? []).reduce((sum, id) => sum * 31 + id, 7) % 97) / 97),
  ],
});

type Scenario = Parameters<typeof environment.rollout>[0];

/** Constant for every third scenario, fails on some seeds, and has a group reward. */
const selective = defineEnvironment<Scenario>({
  ...environment,
  rollout(scenario, context) {
    if (context.seed % 5 === 0) throw new Error(`seed ${context.seed}`);
    return environment.rollout(scenario, context);
  },
  rewards: environment.rewards.map(({ name: own, score }) =>
    reward(own, (input) => (input.scenario.text.startsWith("c") || input.scenario.text.startsWith("f") ? 0.5 : score(input))),
  ),
  groupRewards: [
    { name: "longer", weight: 0.01, scoreGroup: ({ trajectories }) => trajectories.map(({ lastText }) => lastText.length > 20) },
  ],
});

const second = defineEnvironment<Scenario>({
  ...environment,
  name: "second",
  scenarios: { train: ["p", "q", "r", "s", "t"].map((text) => ({ id: text, text })), eval: [{ id: "eval-1", text: "w" }] },
});

const selection = {
  environment: [{ environment: selective, weight: 2 }, { environment: second }],
  refill: { maxGroups: 8 },
  filters: { constant: true, minCompletionTokens: 2 },
  curriculum: { pool: 12, key: ({ text }: Scenario) => text },
  replacements: 4,
};

const service = await connect({ baseUrl, apiKey });
const model = await service.models.create({ project: "demo", name, baseModel: "whetstone-tiny", returnExisting: true });
const run = trainRl({
  model,
  ...(isSelective ? selection : { environment }),
  runDir,
  steps,
  maxStepsOffPolicy,
  scenariosPerStep: 4,
  groupSize: 2,
  seed: 3,
  train: { learningRate: 1e-5 },
  evaluation: { every: 3 },
  keepCheckpoints: { recent: 3 },
  report: false,
});
for await (const { seq } of run) if (seq === death?.seq) setTimeout(() => process.kill(process.pid, "SIGKILL"), death?.delayMs);
await service.close();
