/** Compares the table of routes and scopes in `docs/reference/keys.md` with the OpenAPI document. `DOCS_UPDATE=1` writes the table. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { keyScope } from "../../src/base/schema/index.ts";
import { startTestService } from "../service/support.ts";
import { read, ROOT } from "./files.ts";

const PAGE = "docs/reference/keys.md";
const [START, END] = ["<!-- permissions -->\n", "<!-- /permissions -->\n"];
const COLUMNS = [...keyScope.values, "session"];

test("lists the scopes of every route", async () => {
  const { ok } = await startTestService();
  const { paths } = await ok("GET", "/openapi.json", undefined, { key: null });
  const routes = Object.entries(paths as Record<string, Record<string, { security: { key?: string[] }[] }>>).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { security }]) => {
      const scopes = new Set(security.flatMap(({ key = [] }) => key));
      return { route: `${method.toUpperCase()} ${path}`, scopes };
    }),
  );
  const rows = routes
    .filter(({ scopes }) => scopes.size > 0)
    .map(({ route, scopes }) => `| \`${route}\` | ${COLUMNS.map((scope) => (scopes.has(scope) ? "✅" : "")).join(" | ")} |`);
  const table = [
    `| route | ${COLUMNS.map((scope) => `\`${scope}\``).join(" | ")} |`,
    `|---|${"---|".repeat(COLUMNS.length)}`,
    ...rows,
    "",
  ].join("\n");
  const [before = "", rest = ""] = read(PAGE).split(START);
  const [documented, after = ""] = rest.split(END);
  if (process.env["DOCS_UPDATE"] === "1") writeFileSync(join(ROOT, PAGE), before + START + table + END + after);
  else expect(documented).toBe(table);
});
