/**
 * Which rooms of `src/` a room may import, and which packages belong to few rooms. The linter reads it (oxlint.config.js) and a test
 * (test/project/layering.test.ts) checks what a linter cannot see: dynamic imports and the way from the root to a native package.
 *
 *   util, errors ← schema ← trajectory ← dataset, capture, rollout ← environment ← train
 *   schema ← client ← capture, rollout, jobs ← train
 *   schema, trajectory, dataset ← report ← train
 *   schema, trajectory, tokenizer ← learner ← service → engine
 */
const base = ["errors", "util"];
const agent = [...base, "schema", "trajectory", "client"];
const loop = [...agent, "dataset", "capture", "rollout"];

/** Room (a folder or a file of `src/`) → the other rooms it may import. A room that is not listed may import nothing and fails the test. */
export const rooms = {
  errors: [],
  util: ["errors"],
  schema: base,
  tokenizer: base,
  trajectory: [...base, "schema"],
  client: [...base, "schema"],
  dataset: [...base, "schema", "trajectory"],
  capture: agent,
  rollout: agent,
  environment: loop,
  jobs: [...base, "schema", "client"],
  train: [...loop, "environment", "jobs", "report"],
  learner: [...base, "schema", "trajectory", "tokenizer"],
  engine: [...base, "tokenizer"],
  service: [...base, "schema", "trajectory", "tokenizer", "learner", "engine"],
  report: [...base, "schema", "trajectory", "dataset"],
  // Public doubles: they stand in for rooms, so they may see the ports, and no room may see them.
  testing: [...agent, "tokenizer", "engine"],
  // The root export: everything that needs no native code.
  index: [...loop, "environment", "jobs", "train", "report"],
  cli: [...loop, "environment", "jobs", "train", "learner", "tokenizer", "engine", "service", "report", "index"],
};

/** `importer → room` arrows that only a dynamic import may follow, with the reason. */
export const dynamicOnly = {
  // `connect()` starts the embedded service in this process; a script that talks to a remote one never loads it.
  "src/client/embedded.ts": ["service"],
};

/** Package → the rooms that may import it at all. */
export const packageRooms = {
  rxjs: ["jobs", "train"],
  "onnxruntime-node": ["engine"],
  "@photostructure/sqlite": ["service"],
  "node:sqlite": ["service"],
};

/** Packages with a native binary: their types freely, their values only through `await import()`, so that the rest loads without them. */
export const nativePackages = ["onnxruntime-node", "@photostructure/sqlite", "node:sqlite"];

/** The deepest folder below `src/` that holds code; the linter's rules are written out per depth. */
export const maxDepth = 5;
