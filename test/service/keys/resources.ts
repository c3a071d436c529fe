/** Resources of an entity, one of every kind that a route can name, and the requests of all routes that need a key. */
import type { TestService } from "../support.ts";
import { ARTIFACTS, chatLines, finishedEvents, MODELS, preferenceLines, RL_JOBS, rlBody, UNKNOWN_ID } from "../support.ts";

export const KEYS = "/v1/preview/keys";
const SESSIONS = "/v1/preview/sessions";
const FINE_TUNING = "/v1/fine_tuning/jobs";
const ROLLOUT_PLANS = "/v1/preview/rollout-plans";
const ENVIRONMENT_HASH = "e".repeat(64);
const OUTCOME = { exception: { type: "Error", message: "no" } };
const JSON_TYPE = { "content-type": "application/json" };

/** Identifiers of an entity's resources. */
export interface Resources {
  readonly entity: string;
  readonly model: string;
  readonly modelName: string;
  /** A finished RL job with a token report. */
  readonly job: string;
  readonly jobEvent: string;
  readonly artifact: string;
  readonly openArtifact: string;
  readonly trainingUrl: string;
  readonly preferenceUrl: string;
  readonly file: string;
  readonly fineTuningJob: string;
  readonly alias: string;
  readonly session: string;
  readonly sessionKey: string;
  readonly response: string;
  readonly sessionResponse: string;
  readonly rolloutPlan: string;
  /** A task with an outcome. */
  readonly rolloutTask: string;
  readonly leaseToken: string;
  /** Another key of the entity. */
  readonly key: string;
}

/** Creates a key; its secret. */
export async function createKey({ ok }: TestService, request: object): Promise<{ readonly id: string; readonly key: string }> {
  return ok("POST", KEYS, { name: "a key", ...request });
}

let created = 0;

/** Creates the resources of an entity with the key of its administrator. */
export async function createResources(service: TestService, entity: string, key: string): Promise<Resources> {
  const ok = (method: string, path: string, body?: unknown, headers = {}) => service.ok(method, path, body, { key, headers });
  const name = `of-${entity}-${++created}`;
  const model = await ok("POST", MODELS, { project: "demo", name, base_model: "tiny" });
  const job = await ok("POST", RL_JOBS, { ...rlBody(model.id), experimental_config: { token_report: true } });
  const events = await finishedEvents({ ...service, ok: (method, path) => ok(method, path) }, job.id);
  const artifactWith = async (file: string, contents: string) => {
    const version = await ok("POST", ARTIFACTS, { project: "demo", name: `${name}-${file}` });
    await ok("PUT", `${ARTIFACTS}/${version.id}/files/${file}`, contents);
    return version as { id: string; url: string };
  };
  const artifact = await artifactWith("train.jsonl", chatLines(4));
  await ok("POST", `${ARTIFACTS}/${artifact.id}/commit`);
  const preferences = await artifactWith("train.jsonl-2", preferenceLines(2));
  const preferenceVersion = await ok("POST", ARTIFACTS, { project: "demo", name: `${name}-preferences` });
  await ok("PUT", `${ARTIFACTS}/${preferenceVersion.id}/files/train.jsonl`, preferenceLines(2));
  await ok("POST", `${ARTIFACTS}/${preferenceVersion.id}/commit`);
  const file = await ok("POST", "/v1/files", ...formOf(`${entity}.jsonl`));
  const fineTuning = await ok("POST", FINE_TUNING, { model: "tiny", training_file: file.id, suffix: entity });
  const alias = await finishedModel(ok, fineTuning.id);
  const session = await ok("POST", SESSIONS, { model: model.id });
  const ask = { model: model.id, input: `secret of ${entity}` };
  const response = await ok("POST", "/v1/responses", ask);
  const sessionResponse = await service.ok("POST", "/v1/responses", ask, { key: session.key });
  const plan = await ok("POST", ROLLOUT_PLANS, planOf(model.id));
  await ok("POST", `${ROLLOUT_PLANS}/${plan.id}/groups`, { groups: [{ group: 0, scenario: `secret of ${entity}` }] });
  const lease = { worker: entity, environments: [{ name: "letters", hash: ENVIRONMENT_HASH }], plan_id: plan.id };
  const { data } = await ok("POST", "/v1/preview/rollout-tasks/lease", lease);
  const [task] = data as [{ readonly id: string; readonly lease_token: string }];
  await ok("PUT", `/v1/preview/rollout-tasks/${task.id}/outcome?lease_token=${task.lease_token}`, OUTCOME);
  const other = await ok("POST", KEYS, { name: `another key of ${entity}` });
  return {
    entity,
    model: model.id,
    modelName: `${entity}/demo/${name}`,
    job: job.id,
    jobEvent: events[0]!.id,
    artifact: artifact.id,
    openArtifact: preferences.id,
    trainingUrl: artifact.url,
    preferenceUrl: preferenceVersion.url,
    file: file.id,
    fineTuningJob: fineTuning.id,
    alias,
    session: session.id,
    sessionKey: session.key,
    response: response.id,
    sessionResponse: sessionResponse.id,
    rolloutPlan: plan.id,
    rolloutTask: task.id,
    leaseToken: task.lease_token,
    key: other.id,
  };
}

/** Resources that do not exist. */
export const MISSING: Resources = {
  entity: "none",
  model: UNKNOWN_ID,
  modelName: "none/demo/none",
  job: UNKNOWN_ID,
  jobEvent: UNKNOWN_ID,
  artifact: UNKNOWN_ID,
  openArtifact: UNKNOWN_ID,
  trainingUrl: "artifact:///none/demo/none:v0",
  preferenceUrl: "artifact:///none/demo/none:v0",
  file: "file-000000000000000000000000",
  fineTuningJob: "ftjob-000000000000000000000000",
  alias: "ft:tiny:none::000000000000",
  session: UNKNOWN_ID,
  sessionKey: "",
  response: "resp_00000000000000000000000000000000",
  sessionResponse: "resp_00000000000000000000000000000000",
  rolloutPlan: UNKNOWN_ID,
  rolloutTask: UNKNOWN_ID,
  leaseToken: UNKNOWN_ID,
  key: UNKNOWN_ID,
};

type Ok = (method: string, path: string, body?: unknown, headers?: Record<string, string>) => Promise<any>;

/** Waits for a fine-tuning job; the name of its model. */
async function finishedModel(ok: Ok, id: string): Promise<string> {
  for (let turn = 0; turn < 2000; turn++) {
    const { status, fine_tuned_model: name } = await ok("GET", `${FINE_TUNING}/${id}`);
    if (status === "succeeded") return name as string;
    if (status === "failed") throw new Error(`Fine-tuning job ${id} failed`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`Fine-tuning job ${id} did not end`);
}

/** Returns an upload of training data: its body and headers. */
function formOf(filename: string): [body: string, headers: Record<string, string>] {
  const part = (disposition: string, value: string) => `--b\r\nContent-Disposition: form-data; ${disposition}\r\n\r\n${value}\r\n`;
  const body = `${part('name="purpose"', "fine-tune")}${part(`name="file"; filename="${filename}"`, chatLines(4))}--b--\r\n`;
  return [body, { "content-type": "multipart/form-data; boundary=b" }];
}

/** Returns the request for a rollout plan of a model. */
function planOf(modelId: string): object {
  return { environment: "letters", environment_hash: ENVIRONMENT_HASH, policy: "tiny", model_id: modelId, group_size: 1, seed: 0 };
}

/** Request of a route. */
export interface RouteRequest {
  readonly path: string;
  readonly body: unknown;
  readonly headers: Readonly<Record<string, string>>;
}

const user = [{ role: "user", content: "hello" }];

/** Bodies of operations: JSON, or text with its headers. They name the resources wherever the body of the route can. */
const BODIES: Readonly<Record<string, (of: Resources) => object | [body: string, headers: Record<string, string>]>> = {
  createChatCompletion: ({ model }) => ({ model, messages: user, max_tokens: 2 }),
  createChatCompletionWithSlash: ({ alias }) => ({ model: alias, messages: user, max_tokens: 2 }),
  createMessage: ({ model }) => ({ model, messages: user, max_tokens: 2 }),
  countMessageTokens: ({ model }) => ({ model, messages: user }),
  createCompletion: ({ model }) => ({ model, prompt: "hello", max_tokens: 2 }),
  generate: ({ model }) => ({ model, token_ids: [1, 2], sampling_params: { max_tokens: 2 } }),
  tokenize: ({ model }) => ({ model, prompt: "hello" }),
  detokenize: ({ model }) => ({ model, tokens: [1] }),
  createResponse: ({ model, response }) => ({ model, input: "hello", previous_response_id: response, max_output_tokens: 2 }),
  createSession: ({ model }) => ({ model }),
  setSessionReward: () => ({ reward: 1 }),
  addSessionMetrics: () => ({ metrics: { a: 1 } }),
  finishSession: () => ({}),
  addBaseModel: () => ({ source: "tiny" }),
  createModel: ({ model }) => ({ project: "demo", name: `made-${++created}`, base_model: "tiny", from: `${model}:step0` }),
  deleteCheckpoints: () => ({ steps: [7] }),
  createRlJob: ({ model }) => rlBody(model),
  createSftJob: ({ model, trainingUrl }) => ({ model_id: model, training_data_url: trainingUrl }),
  createPreferenceJob: ({ model, preferenceUrl }) => ({ model_id: model, training_data_url: preferenceUrl }),
  createArtifactVersion: () => ({ project: "demo", name: "made" }),
  putArtifactFile: () => [chatLines(1), { "content-type": "application/octet-stream" }],
  commitArtifactVersion: () => ["", {}],
  createFile: () => formOf("made.jsonl"),
  createFineTuningJob: ({ file, alias }) => ({ model: alias, training_file: file }),
  runGrader: ({ model }) => ({
    grader: { type: "score_model", name: "judge", model, input: [{ role: "user", content: "hello" }], range: [0, 1] },
    model_sample: "hello",
    item: {},
  }),
  validateGrader: () => ({ grader: { type: "string_check", name: "a", operation: "eq", input: "a", reference: "a" } }),
  createRolloutPlan: ({ model }) => planOf(model),
  addRolloutGroups: () => ({ groups: [{ group: 1, scenario: null }] }),
  leaseRollouts: ({ rolloutPlan }) => ({
    worker: "w",
    environments: [{ name: "letters", hash: ENVIRONMENT_HASH }],
    plan_id: rolloutPlan,
  }),
  extendRolloutLeases: ({ rolloutTask, leaseToken }) => ({ leases: [{ id: rolloutTask, lease_token: leaseToken }] }),
  releaseRolloutLeases: ({ rolloutTask, leaseToken }) => ({ leases: [{ id: rolloutTask, lease_token: leaseToken }] }),
  deliverRollout: () => OUTCOME,
  createKey: ({ model }) => ({ name: "made", scopes: ["read"], model_id: model }),
  rotateKey: () => ({}),
  limitKey: () => ({ running_choices: 100 }),
  limitEntity: () => ({ running_choices: 100 }),
  drainUpstream: () => ({ url: "http://127.0.0.1:1", drained: true }),
};

/** Operations that change resources of an open artifact version. */
const NEEDS_OPEN = new Set(["putArtifactFile", "commitArtifactVersion"]);

/** Returns the request of an operation about the resources of an entity. */
export function requestOf(operation: { readonly id: string; readonly path: string }, of: Resources, bySession = false): RouteRequest {
  const { id } = operation;
  const parameters: Readonly<Record<string, string>> = {
    model_id: of.model,
    job_id: of.job,
    session_id: of.session,
    artifact_id: NEEDS_OPEN.has(id) ? of.openArtifact : of.artifact,
    file_id: of.file,
    fine_tuning_job_id: of.fineTuningJob,
    response_id: bySession ? of.sessionResponse : of.response,
    plan_id: of.rolloutPlan,
    task_id: of.rolloutTask,
    key_id: of.key,
    entity: of.entity,
    model: id === "deleteServedModel" ? of.alias : of.modelName,
    step: "0",
    path: "train.jsonl",
  };
  const query = id === "deliverRollout" ? `?lease_token=${of.leaseToken}` : "";
  const path = operation.path.replaceAll(/\{(\w+)\}/gu, (_, name: string) => encodeURIComponent(parameters[name]!)) + query;
  const own = { ...of, response: bySession ? of.sessionResponse : of.response };
  const body = BODIES[id]?.(own);
  if (body === undefined) return { path, body: undefined, headers: {} };
  if (!Array.isArray(body)) return { path, body: JSON.stringify(body), headers: JSON_TYPE };
  const [text, headers] = body as [string, Record<string, string>];
  return { path, body: text, headers };
}
