/** Compares `docs/reference/limits.md` with the limits that the service enforces. */
import { expect, it } from "vitest";
import type { FieldLimits } from "../../src/base/schema/chat-fields.ts";
import { MAX_DATA_LINE_BYTES, PREFERENCE_LIMITS, REQUEST_LIMITS, TRAJECTORY_LIMITS } from "../../src/service/http/request-limits.ts";
import { MAX_JSON_DEPTH } from "../../src/base/util/json-size.ts";
import { read } from "./files.ts";

const count = (value: number): string => value.toLocaleString("en-US");

/** Formats a number of bytes as on the page. */
function size(bytes: number): string {
  if (bytes === Infinity) return "`maxBodyBytes`";
  return bytes >= 2 ** 20 ? `${count(bytes / 2 ** 20)} MiB` : `${count(bytes / 1024)} KiB`;
}

const UNITS = {
  characters: (max: number) => `${count(max)} characters`,
  items: (max: number) => `${count(max)} entries`,
  each: (max: number) => `${count(max)} characters per entry or key`,
  total: (max: number) => `${count(max)} characters in all`,
  json: (max: number) => `${count(max)} characters as JSON`,
} as const;

function rowsOf(limits: FieldLimits): string[] {
  return Object.entries(limits).map(([path, limit]) => {
    const parts = Object.entries(limit).map(([kind, max]) => UNITS[kind as keyof typeof UNITS](max as number));
    return `| \`${path}\` | ${parts.join("; ")} |`;
  });
}

/** Returns the rows of the tables under a heading, without header rows. */
function documented(heading: string): string[] {
  const section = read("docs/reference/limits.md")
    .split(/^## /mu)
    .find((text) => text.startsWith(`${heading}\n`));
  if (section === undefined) throw new Error(`docs/reference/limits.md has no section "${heading}"`);
  return section.split("\n").filter((line) => line.startsWith("| `"));
}

it.each(Object.keys(REQUEST_LIMITS) as (keyof typeof REQUEST_LIMITS)[])("lists the limits of a %s request", (kind) => {
  const titles = {
    chat: "Chat completions",
    model: "Creating a model",
    baseModel: "Adding a base model",
    checkpoints: "Deleting checkpoints",
    artifact: "Opening an artifact version",
    sft: "SFT jobs",
    preference: "Preference jobs",
    rl: "RL jobs",
    fineTuning: "Fine-tuning jobs",
    graderRun: "Running a grader",
    graderCheck: "Checking a grader",
    session: "Creating a session",
    sessionReward: "Setting a session's reward",
    sessionMetrics: "Adding a session's metrics",
    key: "Creating an API key",
    keyRotation: "Rotating an API key",
    keyLimits: "Limiting an API key",
    entityLimits: "Limiting an entity",
    drainUpstream: "Draining an upstream server",
    sessionFinish: "Finishing a session",
    rolloutPlan: "Creating a rollout plan",
    rolloutGroups: "Adding groups to a rollout plan",
    rolloutLease: "Leasing rollouts",
    rolloutHeartbeat: "Extending leases",
    rolloutRelease: "Releasing leases",
    rolloutOutcome: "Delivering a rollout",
  };
  expect(documented(titles[kind])).toEqual(rowsOf(REQUEST_LIMITS[kind].fields));
});

it("lists the limits of request bodies", () => {
  const rows = Object.entries(REQUEST_LIMITS).map(
    ([kind, { body }]) =>
      `| \`${kind}\` | ${size(body.bytes)} | ${body.depth} | ${body.values === Infinity ? "no bound" : count(body.values)} | ${size(body.stringBytes)} |`,
  );
  expect(documented("Bodies")).toEqual(rows);
});

it("lists the limits of preference pairs", () => {
  expect(documented("Lines of preference pairs")).toEqual(rowsOf(PREFERENCE_LIMITS));
});

it("lists the limits of training data", () => {
  expect(documented("Lines of training data")).toEqual(rowsOf(TRAJECTORY_LIMITS));
  const page = read("docs/reference/limits.md");
  expect(page).toContain(`at most ${size(MAX_DATA_LINE_BYTES)} long`);
  expect(page).toContain(`nested at most ${MAX_JSON_DEPTH} levels deep`);
});
