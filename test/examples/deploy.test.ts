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
        readonly environment?: Readonly<Record<string, string>>;
      }
    >
  >;
}

const composeFile = (name: string) => parse(read(`${DIRECTORY}/${name}`), { merge: true }) as Compose;
const dockerfile = read(`${DIRECTORY}/Dockerfile`);

/** Parses the arguments of the command line, which must be valid. */
function checkArguments([name, ...args]: readonly string[]): void {
  const command = createProgram("0").commands.find((each) => each.name() === name);
  const { unknown } = command?.exitOverride().parseOptions([...args]) ?? { unknown: ["no command"] };
  expect(unknown, args.join(" ")).toEqual([]);
}

/** Checks that the files that a compose file mounts exist. */
function checkMounts({ services }: Compose): void {
  const mounted = Object.values(services).flatMap(({ volumes = [] }) => volumes.filter((volume) => volume.startsWith("./")));
  expect(mounted.length).toBeGreaterThan(2);
  for (const volume of mounted) {
    const [path = ""] = volume.split(":");
    // The user writes the key.
    if (path !== "./api-key") expect(read(`${DIRECTORY}/${path.slice(2)}`).length).toBeGreaterThan(0);
  }
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
    checkArguments(JSON.parse(/^CMD (\[.*\])$/mu.exec(dockerfile)?.[1] ?? "[]") as string[]);
    expect(dockerfile).toContain("dist/cli/main.js");
  });

  it("the compose file starts the service with options that exist, and mounts files that exist", () => {
    const compose = composeFile("compose.yaml");
    const { whetstone } = compose.services;
    checkArguments(whetstone?.command ?? []);
    expect(whetstone?.build?.dockerfile).toBe(`${DIRECTORY}/Dockerfile`);
    checkMounts(compose);
    for (const name of ["prometheus", "grafana-datasource", "grafana-dashboards"])
      expect(parse(read(`${DIRECTORY}/${name}.yaml`))).toBeInstanceOf(Object);
  });

  it("the compose file of a team has two services on one database and bucket, and two workers", () => {
    const compose = composeFile("compose-team.yaml");
    const { services } = compose;
    checkMounts(compose);
    for (const name of ["whetstone-1", "whetstone-2", "worker-1", "worker-2"]) checkArguments(services[name]?.command ?? []);
    expect(services["whetstone-1"]?.environment).toEqual(services["whetstone-2"]?.environment);
    expect(services["whetstone-1"]?.volumes).not.toEqual(services["whetstone-2"]?.volumes);
    expect(Object.keys(services["whetstone-1"]?.environment ?? {})).toEqual(
      expect.arrayContaining(["WHETSTONE_API_KEY", "WHETSTONE_DATABASE", "WHETSTONE_STORAGE"]),
    );
    for (const file of ["Caddyfile-team", "prometheus-team.yaml"])
      for (const name of ["whetstone-1", "whetstone-2"]) expect(read(`${DIRECTORY}/${file}`)).toContain(`${name}:8321`);
    // The packages of Postgres and metrics, in the versions of the tests.
    const { devDependencies } = JSON.parse(read("package.json")) as { devDependencies: Readonly<Record<string, string>> };
    for (const name of ["pg", "prom-client"]) expect(dockerfile).toContain(`${name}@${devDependencies[name]}`);
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
