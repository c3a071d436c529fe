/**
 * Trackers against the servers of other projects. Needs a Python with `pip install mlflow trackio`:
 * `WHETSTONE_TRACKERS_PYTHON=<path of python> npx vitest run test/trackers`. CI runs test/trackers/mlflow.test.ts instead.
 */
import { spawn, spawnSync } from "node:child_process";
import { createServer, type AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { mlflowTracker } from "../../src/training/trackers/mlflow.ts";
import { trackioTracker } from "../../src/training/trackers/trackio.ts";
import { temporaryDirectory } from "../service/support.ts";
import { readLines, setUp, start, type SetUp } from "../train/support.ts";
import type { Tracker } from "../../src/training/train/index.ts";

const python = process.env["WHETSTONE_TRACKERS_PYTHON"];
const START_MS = 180_000;

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Starts a server in a process group of its own and waits until it answers at `url`. */
async function serve(args: readonly string[], url: string, env: Record<string, string> = {}): Promise<void> {
  const child = spawn(python!, args, { env: { ...process.env, ...env }, stdio: "ignore", detached: true, cwd: await temporaryDirectory() });
  onTestFinished(() => void process.kill(-child.pid!, "SIGKILL"));
  await expect
    .poll(
      () =>
        fetch(url).then(
          (response) => response.status,
          () => 0,
        ),
      { timeout: START_MS, interval: 500 },
    )
    .toBe(200);
}

function read(script: string, ...args: string[]): any {
  const { status, stdout, stderr } = spawnSync(python!, ["-c", script, ...args], { encoding: "utf8" });
  expect(status, stderr).toBe(0);
  return JSON.parse(stdout.trim().split("\n").at(-1)!);
}

/** Runs two steps, then resumes to a third, and returns rows of metrics.jsonl as `[step, value]`. */
async function tracked(tracker: Tracker): Promise<{ given: SetUp; rows: unknown[][]; warnings: string[] }> {
  const given = await setUp();
  const warnings: string[] = [];
  for (const steps of [2, 3]) {
    const run = start(given, { trackers: [tracker], steps });
    for await (const event of run) if (event.type === "warning" && event.code.startsWith("tracker")) warnings.push(event.message);
  }
  const rows = (await readLines(given.runDir, "metrics.jsonl")).map((row) => [row.step, row["reward/mean"]]);
  return { given, rows, warnings };
}

describe.skipIf(python === undefined)(
  "a server of another project (set WHETSTONE_TRACKERS_PYTHON)",
  { timeout: START_MS + 120_000 },
  () => {
    it("MLflow stores parameters, metrics of every step once, status and traces", async () => {
      const directory = await temporaryDirectory();
      const port = await freePort();
      const url = `http://127.0.0.1:${port}`;
      const store = ["--backend-store-uri", `sqlite:///${directory}/mlflow.db`, "--default-artifact-root", `${directory}/artifacts`];
      await serve(["-m", "mlflow", "server", ...store, "--host", "127.0.0.1", "--port", String(port), "--workers", "1"], `${url}/health`);
      // The first request of a new server is slow.
      await expect
        .poll(() => fetch(`${url}/api/2.0/mlflow/experiments/get-by-name?experiment_name=Default`).then((response) => response.status), {
          timeout: START_MS,
        })
        .toBe(200);
      const { rows, warnings } = await tracked(mlflowTracker({ url, experiment: "tests", rollouts: 2 }));
      expect(warnings).toEqual([]);
      const script = `
import json, sys, mlflow
mlflow.set_tracking_uri(sys.argv[1])
client = mlflow.MlflowClient()
experiment = client.get_experiment_by_name("tests").experiment_id
runs = client.search_runs([experiment])
traces = client.search_traces(locations=[experiment])
print(json.dumps({
  "runs": len(runs), "status": runs[0].info.status, "group_size": runs[0].data.params["group_size"],
  "reward": [[m.step, m.value] for m in client.get_metric_history(runs[0].info.run_id, "reward/mean")],
  "traces": len(traces), "type": traces[0].data.spans[0].span_type, "inputs": traces[0].data.spans[0].inputs,
}))`;
      expect(read(script, url)).toEqual({
        runs: 1,
        status: "FINISHED",
        group_size: "3",
        reward: rows,
        traces: 6,
        type: "AGENT",
        inputs: { messages: [{ role: "user", content: expect.stringMatching(/^train-/) }] },
      });
    });

    it("trackio stores metrics of every step once, and traces", async () => {
      const directory = await temporaryDirectory();
      const port = await freePort();
      const url = `http://127.0.0.1:${port}`;
      const env = { TRACKIO_DIR: directory, TRACKIO_WRITE_TOKEN: "secret", GRADIO_SERVER_PORT: String(port), HF_HUB_OFFLINE: "1" };
      await serve(["-c", "import sys; from trackio.cli import main; sys.argv = ['trackio', 'show']; main()"], url, env);
      const { rows, warnings } = await tracked(trackioTracker({ url: `${url}?write_token=secret`, project: "tests", rollouts: 2 }));
      expect(warnings).toEqual([]);
      const script = `
import json, sqlite3, sys
database = sqlite3.connect(sys.argv[1] + "/tests.db")
rows = [[step, json.loads(metrics).get("reward/mean")] for step, metrics in database.execute("select step, metrics from metrics order by id")]
print(json.dumps({"reward": [row for row in rows if row[1] is not None], "traces": database.execute("select count(*) from traces").fetchone()[0]}))`;
      expect(read(script, directory)).toEqual({ reward: rows, traces: 6 });
    });
  },
);
