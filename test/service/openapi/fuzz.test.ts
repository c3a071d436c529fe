/** Requests made from the OpenAPI document: valid requests are accepted, invalid ones rejected, and answers match their schemas. */
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import fc from "fast-check";
import { expect, it } from "vitest";
import {
  ARTIFACTS,
  createModel,
  startRlJob,
  startTestService,
  testBase,
  uploadArtifact,
  type Answer,
  type TestService,
} from "../support.ts";
import { SchemaArbitraries, type Schema } from "./arbitrary.ts";

/** Requests per operation; `OPENAPI_FUZZ_RUNS` asks for another number. @default 12 */
const RUNS = Number(process.env["OPENAPI_FUZZ_RUNS"] ?? 12);

/** Operations with rules that no JSON schema holds, between fields or about stored objects; they may refuse a body that fits. */
const HAVE_RULES = [
  "addRolloutGroups",
  "countMessageTokens",
  "createChatCompletion",
  "createChatCompletionWithSlash",
  "createCompletion",
  "createFile",
  "createFineTuningJob",
  "createKey",
  "createMessage",
  "createModel",
  "createResponse",
  "createRlJob",
  "createSftJob",
  "createRolloutPlan",
  "deleteServedModel",
  "deliverRollout",
  "detokenize",
  "generate",
  "listArtifactVersions",
  "listAuditRecords",
  "listCheckpoints",
  "listEntities",
  "leaseRollouts",
  "listFiles",
  "listFinishedRollouts",
  "listFineTuningJobCheckpoints",
  "listFineTuningJobEvents",
  "listFineTuningJobs",
  "listJobEvents",
  "listJobs",
  "listKeys",
  "listModels",
  "listRolloutPlans",
  "listSessions",
  "rotateKey",
  "tokenize",
];

interface Operation extends Schema {
  readonly operationId: string;
}
interface Sent {
  readonly method: string;
  readonly path: string;
  readonly body: unknown;
  /** True if the document allows every part of the request. */
  readonly fits: boolean;
}

/** A service with objects to address, and its document. */
interface Described extends TestService {
  readonly ids: readonly string[];
  readonly document: Schema;
  /** True if a value fits the schema at a place of the document. */
  readonly fits: (reference: string, value: unknown) => boolean;
}

async function startService(): Promise<Described> {
  const started = await startTestService({ engine: { bases: await testBase() } });
  const { id: modelId } = await createModel(started);
  await uploadArtifact(started, { "train.jsonl": '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}' });
  const { id: artifactId } = await started.ok("POST", ARTIFACTS, { project: "demo", name: "open" });
  const jobId = await startRlJob(started, modelId);
  const { id: sessionId } = await started.ok("POST", "/v1/preview/sessions", { model: "tiny" });
  const { body: document } = await started.call("GET", "/openapi.json", undefined, { key: null });
  const ajv = new Ajv2020({ strict: false, validateFormats: false, schemas: { document } });
  const known = new Map<string, ValidateFunction>();
  const fits = (reference: string, value: unknown): boolean => {
    const validate = known.get(reference) ?? ajv.compile({ $ref: reference });
    known.set(reference, validate);
    return validate(value);
  };
  return { ...started, document, ids: [modelId, artifactId, jobId, sessionId], fits };
}

const pointer = (...keys: readonly string[]) =>
  `document#/${keys.map((key) => encodeURIComponent(key.replaceAll("~", "~0").replaceAll("/", "~1"))).join("/")}`;

function requests({ document, ids, fits }: Described, path: string, method: string, operation: Operation): fc.Arbitrary<Sent> {
  const arbitraries = new SchemaArbitraries(document, ids);
  const parameters: readonly Schema[] = operation["parameters"] ?? [];
  const segment = fc.oneof(fc.constantFrom(...ids), fc.string({ unit: "grapheme", minLength: 1, maxLength: 10 }));
  const parts = parameters.map((parameter, index) => {
    const known = arbitraries.fitting(parameter["schema"]);
    const value = fc.oneof({ weight: 4, arbitrary: known }, { weight: 1, arbitrary: segment });
    const reference = pointer("paths", path, method, "parameters", String(index), "schema");
    const used = parameter["in"] === "path" ? value : fc.option(value, { nil: undefined });
    return used.map((each) => {
      const isNumber = typeof each === "string" && each.trim() !== "" && Number.isFinite(Number(each));
      const isFitting = each === undefined || fits(reference, each) || (isNumber && fits(reference, Number(each)));
      return { name: parameter["name"] as string, place: parameter["in"] as string, value: each, isFitting };
    });
  });
  const schema = operation["requestBody"]?.content["application/json"]?.schema as Schema | undefined;
  const bytes = operation["requestBody"]?.content["application/octet-stream"] !== undefined;
  const body =
    schema !== undefined ? fc.oneof(arbitraries.fitting(schema), arbitraries.spoiled(schema)) : fc.constant(bytes ? "bytes" : undefined);
  return fc.tuple(fc.tuple(...parts), body).map(([given, value]) => {
    const query = new URLSearchParams();
    let filled = path;
    for (const each of given) {
      if (each.place === "path") filled = filled.replace(`{${each.name}}`, encodeURIComponent(String(each.value)));
      else if (each.place === "query" && each.value !== undefined) query.set(each.name, String(each.value));
    }
    const hasBody = schema !== undefined;
    const bodyFits = !hasBody || fits(pointer("paths", path, method, "requestBody", "content", "application/json", "schema"), value);
    const parametersFit = given.every(({ isFitting, place }) => isFitting || place === "header");
    const text = query.size === 0 ? "" : `?${query.toString()}`;
    return {
      method: method.toUpperCase(),
      path: filled + text,
      body: hasBody ? JSON.stringify(value) : value,
      fits: bodyFits && parametersFit,
    };
  });
}

function check(
  { document, fits }: Described,
  path: string,
  method: string,
  operation: Operation,
  sent: Sent,
  { status, headers, body }: Answer,
): void {
  const described = operation["responses"][status] as Schema | undefined;
  const shown = `${sent.method} ${sent.path} ${String(sent.body).slice(0, 500)} → ${status} ${JSON.stringify(body).slice(0, 300)}`;
  expect(described, shown).toBeDefined();
  expect(status, shown).toBeLessThan(500);
  const reference = described!["$ref"] as string | undefined;
  const response = new SchemaArbitraries(document, []).resolve(described!);
  const type = headers.get("content-type")!.split(";")[0]!;
  expect(Object.keys(response["content"]), shown).toContain(type);
  const place = reference === undefined ? pointer("paths", path, method, "responses", String(status)) : `document${reference}`;
  if (type === "application/json") expect(fits(`${place}/content/application~1json/schema`, body), shown).toBe(true);
  for (const [name, header] of Object.entries<Schema>(response["headers"] ?? {}))
    if (header["required"] === true) expect(headers.has(name), shown).toBe(true);
  if (!sent.fits) expect(status, shown).toBeGreaterThanOrEqual(400);
  else if (!HAVE_RULES.includes(operation.operationId)) expect([200, 404, 409], shown).toContain(status);
}

it("answers every operation as documented, for valid and invalid requests", async () => {
  const service = await startService();
  const operations = Object.entries<Record<string, Operation>>(service.document["paths"]).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => [path, method, operation] as const),
  );
  expect(operations.length).toBeGreaterThan(20);
  for (const [path, method, operation] of operations) {
    const hasJson = operation["requestBody"]?.content["application/json"] !== undefined;
    const headers: Record<string, string> = hasJson ? { "content-type": "application/json" } : {};
    const made = requests(service, path, method, operation);
    await fc.assert(
      fc.asyncProperty(made, async (sent) => {
        check(service, path, method, operation, sent, await service.call(sent.method, sent.path, sent.body, { headers }));
      }),
      { numRuns: RUNS },
    );
    const [sent] = fc.sample(made, 1);
    const { status } = await service.call(sent!.method, sent!.path, sent!.body, { headers, key: null });
    expect([operation.operationId, status === 401]).toEqual([operation.operationId, (operation["security"] as unknown[]).length > 0]);
  }
}, 120_000);
