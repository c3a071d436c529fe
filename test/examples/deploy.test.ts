/** examples/deploy: the files agree with the command line, the routes and the metrics that exist. */
import { describe, expect, it } from "vitest";
import { parse } from "yaml";
import { createProgram } from "../../src/cli/program.ts";
import { read } from "../project/files.ts";
import { choice, group, startTestService } from "../service/support.ts";

const DIRECTORY = "examples/deploy";

interface Compose {
  readonly services: Readonly<
    Record<
      string,
      {
        readonly image?: string;
        readonly command?: readonly string[];
        readonly build?: { readonly dockerfile: string };
        readonly volumes?: readonly string[];
      }
    >
  >;
}

const compose = parse(read(`${DIRECTORY}/compose.yaml`)) as Compose;
const dockerfile = read(`${DIRECTORY}/Dockerfile`);

/** Parses the arguments of `whetstone serve`, which must be valid. */
function checkServe([command, ...args]: readonly string[]): void {
  const serve = createProgram("0").commands.find((each) => each.name() === command);
  serve?.exitOverride().parseOptions([...args]);
  const { unknown } = serve?.parseOptions([...args]) ?? { unknown: ["no command"] };
  expect(unknown, args.join(" ")).toEqual([]);
}

/** Returns the metric names of a PromQL expression: identifiers that are no function, keyword or label. */
function metricsIn(expression: string): string[] {
  const plain = expression
    .replaceAll(/"[^"]*"/gu, "")
    .replaceAll(/\bby \([^)]*\)/gu, "")
    .replaceAll(/\{[^}]*\}/gu, "")
    .replaceAll(/\[[^\]]*\]/gu, "");
  const names = plain.match(/[a-z_][a-z0-9_]*/gu) ?? [];
  return names.filter((name) => !["sum", "rate", "increase", "histogram_quantile"].includes(name));
}

describe("examples/deploy", () => {
  it("the image does not run as root, checks the health, and starts the service with options that exist", () => {
    expect(dockerfile).toMatch(/^USER node$/mu);
    expect(dockerfile.indexOf("USER node")).toBeLessThan(dockerfile.indexOf("ENTRYPOINT"));
    const [, probe = "[]"] = /^HEALTHCHECK [^\n]*\\\n\s+CMD (\[.*\])$/mu.exec(dockerfile) ?? [];
    expect((JSON.parse(probe) as string[]).join(" ")).toContain("http://127.0.0.1:8321/health");
    checkServe(JSON.parse(/^CMD (\[.*\])$/mu.exec(dockerfile)?.[1] ?? "[]") as string[]);
    expect(dockerfile).toContain("dist/cli/main.js");
  });

  it("the compose file starts the service with options that exist, and mounts files that exist", () => {
    const { whetstone } = compose.services;
    checkServe(whetstone?.command ?? []);
    expect(whetstone?.build?.dockerfile).toBe(`${DIRECTORY}/Dockerfile`);
    const mounted = Object.values(compose.services).flatMap(({ volumes = [] }) => volumes.filter((volume) => volume.startsWith("./")));
    expect(mounted.length).toBeGreaterThan(4);
    for (const volume of mounted) {
      const [path = ""] = volume.split(":");
      // The user writes the key.
      if (path !== "./api-key") expect(read(`${DIRECTORY}/${path.slice(2)}`).length).toBeGreaterThan(0);
    }
    for (const name of ["prometheus", "grafana-datasource", "grafana-dashboards"])
      expect(parse(read(`${DIRECTORY}/${name}.yaml`))).toBeInstanceOf(Object);
    expect(read(`${DIRECTORY}/prometheus.yaml`)).toContain("metrics_path: /metrics");
  });

  it("the queries of the dashboard name metrics and labels that exist, and every metric of the service is described", async () => {
    const { ok } = await startTestService({ metrics: true });
    const model = await ok("POST", "/v1/preview/models", { project: "p", name: "m", base_model: "tiny" });
    const groups = [group({ reward: 1, choices: [choice([5], [6])] }, { reward: 0, choices: [choice([5], [7])] })];
    await ok("POST", "/v1/preview/training-jobs", { model_id: model.id, trajectory_groups: groups });
    await ok("POST", "/v1/chat/completions", { messages: [{ role: "user", content: "hi" }], max_tokens: 2 });
    const text = (await ok("GET", "/metrics")) as string;
    const names = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gmu)].flatMap(([, name = "", type]) =>
      type === "histogram" ? [name, `${name}_bucket`, `${name}_count`, `${name}_sum`] : [name],
    );
    const dashboard = JSON.parse(read(`${DIRECTORY}/grafana-dashboard.json`)) as {
      panels: { title: string; targets: { expr: string }[] }[];
    };
    const used = dashboard.panels.flatMap(({ targets }) => targets.flatMap(({ expr }) => metricsIn(expr)));
    expect(used.length).toBeGreaterThan(25);
    for (const name of used) expect(names).toContain(name);
    const described = [...read("docs/reference/service-metrics.md").matchAll(/^\| `(whetstone_\w+)` \| (\w+) \|/gmu)].map(
      ([, name, type]) => `${name} ${type}`,
    );
    const existing = [...text.matchAll(/^# TYPE (whetstone_\S+) (\S+)$/gmu)].map(([, name, type]) => `${name} ${type}`);
    expect(described.toSorted()).toEqual(existing.toSorted());
  });
});
