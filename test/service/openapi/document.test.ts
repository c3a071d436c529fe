import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Ajv2020 } from "ajv/dist/2020.js";
import { expect, test } from "vitest";
import { describedFields } from "../../../src/engine/upstream/capabilities.ts";
import { CHAT_FIELDS } from "../../../src/base/schema/chat-fields.ts";
import { projectFiles, read } from "../../project/files.ts";
import { startTestService } from "../support.ts";

type Document = Record<string, any>;

/** Schema of OpenAPI 3.1 documents, from spec.openapis.org/oas/3.1/schema. */
const OPENAPI = JSON.parse(readFileSync(join(import.meta.dirname, "openapi-3.1.schema.json"), "utf8")) as object;

async function getDocument(): Promise<Document> {
  const { call } = await startTestService();
  const answer = await call("GET", "/openapi.json", undefined, { key: null });
  expect([answer.status, answer.headers.get("content-type")]).toEqual([200, "application/json"]);
  return answer.body as Document;
}

function operations({ paths }: Document): { readonly path: string; readonly method: string; readonly operation: Document }[] {
  return Object.entries<Document>(paths).flatMap(([path, methods]) =>
    Object.entries<Document>(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
  );
}

test("is an OpenAPI 3.1 document with valid references and schemas", async () => {
  const document = await getDocument();
  const openapi = new Ajv2020({ strict: false, validateFormats: false });
  expect([openapi.validate(OPENAPI, document), openapi.errors]).toEqual([true, null]);
  expect(openapi.validate(OPENAPI, { ...document, paths: { "no-slash": {} } })).toBe(false);
  const schemas = new Ajv2020({ strict: false, validateFormats: false, schemas: { document } });
  // Compiling resolves every reference.
  for (const name of Object.keys(document["components"].schemas)) schemas.compile({ $ref: `document#/components/schemas/${name}` });
  const references = [...JSON.stringify(document).matchAll(/"#\/components\/(\w+)\/(\w+)"/gu)];
  for (const [, kind = "", name = ""] of references) expect(document["components"][kind], `${kind}/${name}`).toHaveProperty(name);
  const ids = operations(document).map(({ operation }) => operation["operationId"] as string);
  expect(new Set(ids).size).toBe(ids.length);
});

test("describes the grader of a reinforcement job as the one of a grader route", async () => {
  const { schemas } = (await getDocument())["components"] as Document;
  const { grader } = schemas["FineTuningMethod"].properties.reinforcement.anyOf[0].properties as Document;
  expect(grader).toEqual({ $ref: "#/components/schemas/GraderInput" });
  expect(schemas["RunGraderRequest"].properties.grader).toEqual(grader);
});

test("has every route of the reference, and the reference every route of the document", async () => {
  const document = await getDocument();
  const table = read("docs/reference/http-api.md").split("\n## Routes\n")[1]!.split("\n## ")[0]!;
  const rows = [...table.matchAll(/^\| `(GET|POST|PUT|DELETE) ([^`]+)`(.*)$/gmu)].map(([, method, path, rest]) => ({
    route: `${method} ${path}`,
    isExtension: rest!.includes("| extension |"),
  }));
  const described = operations(document)
    .filter(({ path }) => path !== "/v1/chat/completions/")
    .map(({ path, method, operation }) => ({
      route: `${method} ${path}`,
      isExtension: String(operation["description"]).includes("Extension of the interface."),
    }));
  const sorted = (list: typeof rows) => list.toSorted((a, b) => (a.route < b.route ? -1 : 1));
  expect(sorted(rows)).toEqual(sorted(described));
});

test("has every route but the ones of the dashboard's page: routes are registered from its table alone", () => {
  const sources = projectFiles("src/service").filter((file) => file.endsWith(".ts"));
  expect(sources.filter((file) => read(file).includes("new Hono"))).toEqual(["src/service/app.ts"]);
  const registered = read("src/service/app.ts").matchAll(/app\.(?:get|post|put|delete|patch|all|on|route)\(.*\)/gu);
  expect([...registered].map(([text]) => text)).toEqual(['app.route("/", dashboard.app)']);
});

test("needs a key exactly where the service does", async () => {
  const { call } = await startTestService();
  const { body } = await call("GET", "/openapi.json", undefined, { key: null });
  const open = operations(body as Document).filter(({ operation }) => operation["security"]?.length === 0);
  expect(open.map(({ path }) => path).toSorted()).toEqual(["/docs", "/health", "/openapi.json", "/ping", "/ready", "/version"]);
  for (const { path } of open) {
    expect((await call("GET", path, undefined, { key: null })).status).toBe(200);
    expect((await call("HEAD", path, undefined, { key: null })).status).toBe(200);
    const other = await call("POST", path, undefined, { key: null });
    expect([other.status, other.headers.get("allow")]).toEqual([405, "GET, HEAD, OPTIONS"]);
  }
});

test("names every field of chat completions, as another service that samples there asks", async () => {
  const fields = describedFields(await getDocument());
  expect([...(fields ?? [])].toSorted()).toEqual(Object.keys(CHAT_FIELDS).toSorted());
});

test("is a page that shows every operation and schema and loads nothing", async () => {
  const { call } = await startTestService();
  const { body: document } = await call("GET", "/openapi.json", undefined, { key: null });
  const page = await call("GET", "/docs", undefined, { key: null });
  expect(page.headers.get("content-type")).toMatch(/^text\/html/u);
  expect(page.headers.get("content-security-policy")).toContain("default-src 'none'");
  const html = page.body as string;
  for (const { path, operation } of operations(document as Document)) {
    expect(html).toContain(`id="${operation["operationId"]}"`);
    expect(html).toContain(`<code>${path}</code>`);
  }
  for (const name of Object.keys(document.components.schemas)) expect(html).toContain(`id="${name}"`);
  const links = [...html.matchAll(/(?:href|src)="([^"]*)"/gu)].map(([, target]) => target!);
  expect(links.filter((link) => !link.startsWith("#") && link !== "/openapi.json")).toEqual([]);
  for (const link of links.filter((each) => each.startsWith("#"))) expect(html).toContain(`id="${link.slice(1)}"`);
  expect(html).not.toMatch(/<script|@import|url\(/u);
});
