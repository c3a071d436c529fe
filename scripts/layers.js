/**
 * Import rules: the rooms of `src/` that each room may import, the layers inside some of them, and packages reserved for a few rooms. A room
 * is a folder or file of a wing (`library/client`), or a wing without rooms (`engine`). The linter enforces the rules (oxlint.config.js); a
 * test (test/project/layering.test.ts) also checks dynamic imports and the path from the root export to a native package.
 *
 *   base ← text, dialects, graders; base, dialects ← library ← run ← training ← cli
 *   run ← lab ← training, service
 *   base, text ← learner, engine ← service → dialects, lab/dashboard
 */
const base = ["base/errors", "base/util"];
const text = ["text/tokenizer", "text/grammar"];
const agent = [...base, "base/schema", "base/trajectory", "library/client"];
const loop = [...agent, "library/dataset", "library/capture", "library/rollout"];
const runs = [...base, "base/schema", "base/trajectory", "library/dataset", "run"];

/** Room → the other rooms it may import. A file outside a listed room fails the test. */
export const modules = {
  // Imported by every part and above none: errors, helpers, the data of the HTTP interface, file formats.
  "base/errors": [],
  "base/util": ["base/errors"],
  "base/schema": base,
  "base/progress": base,
  // Reader of GGUF files: metadata as the files of Hugging Face layout, tensors as float32.
  "base/gguf": base,
  "base/trajectory": [...base, "base/schema"],
  "base/training-rows": [],

  // Libraries without training: usable on their own.
  "text/tokenizer": [...base, "base/gguf"],
  "text/grammar": base,

  // Translation of API dialects to chat completions, for the service, which samples them, and for readers of recorded requests.
  dialects: [...base, "base/schema"],
  // Scores of a model's output in the format of OpenAI's graders, for the service, and as rewards of environments.
  graders: [...base, "base/schema", "base/trajectory"],

  "library/client": [...base, "base/schema"],
  "library/dataset": [...base, "base/schema", "dialects", "base/trajectory"],
  "library/capture": [...agent, "dialects"],
  "library/rollout": [...agent, "base/progress"],
  "library/environment": loop,
  // Message brokers that distribute rollouts to workers, each its own entry; loaded only by programs that import one.
  "library/brokers": [...base, "library/client", "library/environment"],
  // Environments of other frameworks over their protocols, and servers for own ones.
  "library/protocols": [...loop, "library/environment"],
  // Scenarios that a model writes for the tools of an agent.
  "library/scenarios": [...base, "base/schema", "base/trajectory", "library/dataset", "library/rollout"],
  // Rewards computed by a language model; their types are defined in `base/trajectory`.
  "library/judge": agent,
  "library/follow": [...base, "base/schema", "library/client"],

  // Run directories: `training/train` writes them through this wing, every other room reads them through it.
  run: [...base, "base/schema", "base/trajectory", "library/dataset", "library/follow"],

  "lab/report": runs,
  "lab/experiment": [...runs, "lab/report"],
  "lab/dashboard": [...runs, "lab/report", "lab/experiment"],
  // Scripts for browsers, bundled by src/base/util/page-files.ts: the other rooms give them types and functions without Node's interfaces.
  "lab/page": ["base/schema", "run", "lab/report", "lab/dashboard"],

  "training/train": [...loop, "library/environment", "library/follow", "run", "lab/report", "base/progress"],
  // Optional destinations of a run, each its own entry; loaded only by programs that import one.
  "training/trackers": [...base, "base/schema", "base/trajectory", "training/train"],

  learner: [...base, "base/schema", "base/trajectory", "text/tokenizer", "base/training-rows"],
  engine: [...base, ...text, "base/gguf", "base/training-rows"],
  service: [...base, ...text, "base/gguf", "base/schema", "base/trajectory", "dialects", "graders", "learner", "engine", "lab/dashboard"],
  // Reads weights and tokenizers from files; loads no native code.
  export: [...base, "base/gguf", "base/schema", "library/client", "text/tokenizer", "engine"],
  // Test doubles for users, among them the complete service on a scripted engine. No other room may import them.
  testing: [...agent, "text/tokenizer", "engine", "base/training-rows", "service"],
  // The root export: everything that needs no native code.
  index: [...loop, "library/environment", "library/follow", "training/train", "lab/report"],
  // Traces of the process with the API of OpenTelemetry, its own entry; loaded only by programs that import it.
  tracing: base,
  cli: [
    ...loop,
    "library/environment",
    "library/brokers",
    "library/follow",
    "run",
    "training/train",
    "training/trackers",
    "learner",
    "text/tokenizer",
    "engine",
    "service",
    "lab/report",
    "lab/experiment",
    "export",
    "index",
    "tracing",
  ],
};

/** Returns the room of a path below `src`, without its extension; undefined for a path outside every room. */
export function roomOf(path) {
  const [wing = "", room = ""] = path.split("/");
  return [`${wing}/${room}`, wing].find((name) => name in modules);
}

/**
 * Layers of some folders: subfolder → the other subfolders that it may import. `ownFiles` gives the position of the folder's own files;
 * without an entry they are the top layer, which may import every subfolder and which no subfolder may import.
 */
export const layers = {
  "library/protocols": { episode: [], openenv: ["episode"], ors: ["episode"] },
  "text/grammar": { compile: [], decode: [] },
  "engine/onnx": {
    graph: [],
    runtime: ["graph"],
    model: ["graph", "runtime"],
    sample: ["graph", "runtime", "model"],
    train: ["graph", "runtime", "model"],
    threads: ["graph", "runtime", "model", "sample", "train"],
  },
  "lab/page": { components: [], report: ["components"], dashboard: ["components"] },
  // The loose files compose the service: `start.ts`, `app.ts`, `create-context.ts`, and for its threads `create-work.ts`, `request-worker.ts`.
  service: {
    // Names, limits, the logger.
    common: [],
    // Pool of threads. The owners of the work define the tasks.
    work: [],
    // Files of the data directory, without knowledge of the database.
    disk: ["common"],
    // Permanent place of these files: the data directory, or an S3 bucket.
    storage: ["common", "disk"],
    store: ["common", "disk"],
    // Events of the service, and their subscribers: metrics, traces.
    observability: ["common"],
    // Rate limits, quotas and daily usage of keys and entities.
    quotas: ["common", "store", "observability"],
    // Server, keys, bodies and errors: parts of every route.
    http: ["common", "store", "work", "quotas"],
    hub: ["common", "disk"],
    artifacts: ["common", "disk", "storage", "store"],
    "stored-files": ["common", "disk", "storage", "store", "hub"],
    models: ["common", "store", "hub", "stored-files", "work"],
    checkpoints: ["common", "disk", "storage", "store", "artifacts", "stored-files", "models"],
    "training-data": ["common", "disk", "storage", "store", "http", "stored-files", "models", "work"],
    // Text metrics of graders.
    grading: ["work"],
    chat: ["common", "observability", "store", "quotas", "http", "stored-files", "models", "work"],
    dialects: ["common", "observability", "store", "quotas", "http", "chat", "work"],
    sessions: ["common", "observability", "store", "http", "chat"],
    // API keys that administrators create.
    keys: ["common", "store", "http"],
    jobs: [
      "common",
      "observability",
      "disk",
      "storage",
      "store",
      "artifacts",
      "stored-files",
      "models",
      "checkpoints",
      "training-data",
      "grading",
    ],
    // Plans of rollouts, and the tasks that workers lease.
    "rollout-tasks": ["common", "disk", "storage", "store", "artifacts", "stored-files", "training-data", "jobs"],
    history: ["common", "disk", "storage", "store", "artifacts", "jobs"],
    // Jobs of the OpenAI fine-tuning API: a model, a training job, and their names.
    "fine-tuning": [
      ...["common", "disk", "store", "http", "artifacts", "stored-files", "models", "checkpoints", "training-data", "jobs", "history"],
    ],
    openapi: ["common", "http", "chat"],
    routes: [
      ...[
        "common",
        "observability",
        "disk",
        "storage",
        "store",
        "quotas",
        "http",
        "artifacts",
        "stored-files",
        "models",
        "checkpoints",
        "training-data",
      ],
      ...["grading", "chat", "dialects", "sessions", "keys", "jobs", "rollout-tasks", "history", "fine-tuning", "openapi"],
    ],
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

/** `bottom`: every subfolder may import the folder's own files, and they import no subfolder. */
export const ownFiles = { "text/grammar": "bottom" };

/** Imports that only a dynamic `import()` may make: importing file → rooms. */
export const dynamicOnly = {
  // `connect()` starts the embedded service in this process; a script that talks to a remote one never loads it.
  "src/library/client/embedded.ts": ["service"],
};

/** Package → the rooms that may import it. */
export const packageModules = {
  rxjs: ["library/follow", "run", "training/train"],
  ws: ["library/protocols"],
  "onnxruntime-node": ["engine"],
  aws4fetch: ["service"],
  "@photostructure/sqlite": ["service"],
  "node:sqlite": ["service"],
  "prom-client": ["service"],
  bullmq: ["library/brokers"],
  ioredis: ["library/brokers"],
  "@opentelemetry/api": ["tracing"],
};

/**
 * Packages with a native binary, and optional packages: their types freely, their values only through `await import()`, so that the rest loads
 * without them.
 */
export const nativePackages = [
  "onnxruntime-node",
  "@photostructure/sqlite",
  "node:sqlite",
  "prom-client",
  "bullmq",
  "ioredis",
  "@opentelemetry/api",
];

/** The deepest folder below `src/` that holds code; the linter's rules are written out per depth. */
export const maxDepth = 6;
