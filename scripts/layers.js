/**
 * Import rules: the top-level modules of `src/` that each module may import, the layers inside some of them, and packages reserved for a
 * few modules. The linter enforces them (oxlint.config.js); a test (test/project/layering.test.ts) also checks dynamic imports and the
 * path from the root export to a native package.
 *
 *   util, errors ← progress ← rollout, train
 *   util, errors ← gguf ← tokenizer, engine, export, service
 *   util, errors ← schema ← trajectory ← dataset, capture, rollout ← environment ← train
 *   schema ← client ← capture, rollout, follow ← train
 *   schema ← dialects ← dataset, capture, service
 *   schema, trajectory, dataset ← report ← train, experiment, dashboard ← service
 *   schema, trajectory, tokenizer, training-rows ← learner ← service → engine → training-rows, tokenizer, grammar
 */
const base = ["errors", "util"];
const agent = [...base, "schema", "trajectory", "client"];
const loop = [...agent, "dataset", "capture", "rollout"];

/** Module (a folder or a file of `src/`) → the other modules it may import. A module that is not listed fails the test. */
export const modules = {
  errors: [],
  util: ["errors"],
  schema: base,
  // Translation of API dialects to chat completions, for the service, which samples them, and for readers of recorded requests.
  dialects: [...base, "schema"],
  progress: base,
  tokenizer: [...base, "gguf"],
  grammar: base,
  // Reader of GGUF files: metadata as the files of Hugging Face layout, tensors as float32.
  gguf: base,
  "training-rows": [],
  trajectory: [...base, "schema"],
  client: [...base, "schema"],
  dataset: [...base, "schema", "dialects", "trajectory"],
  capture: [...agent, "dialects"],
  rollout: [...agent, "progress"],
  environment: loop,
  // Environments of other frameworks over their protocols, and servers for own ones.
  protocols: [...loop, "environment"],
  // Scenarios that a model writes for the tools of an agent.
  scenarios: [...base, "schema", "trajectory", "dataset", "rollout"],
  // Rewards computed by a language model; their types are defined in `trajectory`.
  judge: agent,
  follow: [...base, "schema", "client"],
  train: [...loop, "environment", "follow", "report", "progress"],
  // Optional destinations of a run, each its own entry; loaded only by programs that import one.
  trackers: [...base, "schema", "trajectory", "train"],
  learner: [...base, "schema", "trajectory", "tokenizer", "training-rows"],
  engine: [...base, "gguf", "tokenizer", "grammar", "training-rows"],
  service: [...base, "gguf", "schema", "dialects", "trajectory", "tokenizer", "grammar", "learner", "engine", "dashboard"],
  report: [...base, "schema", "trajectory", "dataset"],
  // Reads weights and tokenizers from files; loads no native code.
  export: [...base, "gguf", "schema", "client", "tokenizer", "engine"],
  experiment: [...base, "schema", "trajectory", "dataset", "report"],
  dashboard: [...base, "schema", "trajectory", "dataset", "report"],
  // Scripts for browsers, bundled by src/util/page-files.ts: the other modules give them types and functions without Node's interfaces.
  page: ["schema", "report", "dashboard"],
  // Test doubles for users, among them the complete service on a scripted engine. No other module may import them.
  testing: [...agent, "tokenizer", "engine", "training-rows", "service"],
  // The root export: everything that needs no native code.
  index: [...loop, "environment", "follow", "train", "report"],
  cli: [
    ...loop,
    "environment",
    "follow",
    "train",
    "learner",
    "tokenizer",
    "engine",
    "service",
    "report",
    "export",
    "experiment",
    "trackers",
    "index",
  ],
};

/**
 * Layers of some folders: subfolder → the other subfolders that it may import. `ownFiles` gives the position of the folder's own files;
 * without an entry they are the top layer, which may import every subfolder and which no subfolder may import.
 */
export const layers = {
  protocols: { episode: [], openenv: ["episode"], ors: ["episode"] },
  grammar: { compile: [], decode: [] },
  "engine/onnx": {
    graph: [],
    runtime: ["graph"],
    model: ["graph", "runtime"],
    sample: ["graph", "runtime", "model"],
    train: ["graph", "runtime", "model"],
    threads: ["graph", "runtime", "model", "sample", "train"],
  },
  page: { components: [], report: ["components"], dashboard: ["components"] },
  service: {
    store: [],
    artifacts: ["store"],
    disk: ["store"],
    hub: [],
    "stored-files": ["store", "artifacts", "hub"],
    checkpoints: ["store", "disk"],
    "training-data": ["store", "stored-files"],
    sessions: ["store", "chat"],
    chat: ["store", "stored-files", "work"],
    work: ["training-data", "chat", "dialects"],
    jobs: ["store", "artifacts", "disk", "stored-files", "checkpoints", "training-data", "work"],
    history: ["store", "artifacts", "jobs"],
    dialects: ["store", "chat", "work"],
    openapi: ["chat"],
    routes: ["dialects", "store", "artifacts", "checkpoints", "training-data", "chat", "sessions", "work", "jobs", "history", "openapi"],
  },
  // The steps of a request, in order; `forward` replaces all steps after `request` for a model on another server.
  "service/chat": {
    text: [],
    request: ["text"],
    prompt: ["text", "request"],
    generate: ["text", "request", "prompt"],
    answer: ["text", "request", "prompt", "generate"],
    forward: ["text", "request"],
  },
};

/** `bottom`: every subfolder may import the folder's own files, and they import no subfolder. `any`: no rule. */
export const ownFiles = { grammar: "bottom", service: "any" };

/** Imports that only a dynamic `import()` may make: importing file → modules. */
export const dynamicOnly = {
  // `connect()` starts the embedded service in this process; a script that talks to a remote one never loads it.
  "src/client/embedded.ts": ["service"],
};

/** Package → the modules that may import it. */
export const packageModules = {
  rxjs: ["follow", "train"],
  ws: ["protocols"],
  "onnxruntime-node": ["engine"],
  "@photostructure/sqlite": ["service"],
  "node:sqlite": ["service"],
};

/** Packages with a native binary: their types freely, their values only through `await import()`, so that the rest loads without them. */
export const nativePackages = ["onnxruntime-node", "@photostructure/sqlite", "node:sqlite"];

/** The deepest folder below `src/` that holds code; the linter's rules are written out per depth. */
export const maxDepth = 5;
