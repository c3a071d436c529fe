/** Checks of the service that commands use. */
import { readFile } from "node:fs/promises";
import { dataDirectoryAt, readServiceFile } from "../../service/data-directory.ts";
import { messageOf } from "../../service/error-text.ts";
import { healthReport } from "../../schema/index.ts";
import { type Check, guarded, pass, problem } from "./check.ts";

const TIMEOUT_MS = 5000;

/** Address and key of the service that commands use; null if they start one themselves. */
interface Target {
  readonly url: string;
  /** Source of the address, for remedies. */
  readonly source: string;
  readonly key: string;
  readonly keySource: string;
}

async function findTarget(root: string): Promise<Target | null> {
  const directory = dataDirectoryAt(root);
  const configured = process.env["WHETSTONE_BASE_URL"]?.trim() ?? "";
  const url = configured === "" ? (await readServiceFile(directory.serviceFile))?.url : configured;
  if (url === undefined) return null;
  const key = process.env["WHETSTONE_API_KEY"]?.trim() ?? "";
  return {
    url: url.replace(/\/+$/u, "").replace(/\/v1$/u, ""),
    source: configured === "" ? directory.serviceFile : "WHETSTONE_BASE_URL",
    ...(key === "" && configured === ""
      ? { key: (await readFile(directory.keyFile, "utf8").catch(() => "")).trim(), keySource: directory.keyFile }
      : { key, keySource: "WHETSTONE_API_KEY" }),
  };
}

function get(url: string, key?: string): Promise<Response> {
  const headers: Record<string, string> = key === undefined ? {} : { authorization: `Bearer ${key}` };
  return fetch(url, { headers, signal: AbortSignal.timeout(TIMEOUT_MS) });
}

/** Checks that the service of the environment, or of the data directory, answers, accepts the key and has the version of this package. */
export async function checkService(root: string, version: string): Promise<Check[]> {
  const target = await findTarget(root);
  if (target === null) return [pass("service", "none is running; commands start one for their own time")];
  const health = await checkHealth(target);
  if (health.status === "fail") return [health];
  return [health, await checkKey(target), await checkVersion(target, version)];
}

async function checkHealth({ url, source }: Target): Promise<Check> {
  try {
    const report = healthReport.safeParse(await (await get(`${url}/health`)).json());
    if (!report.success)
      return problem("warn", "service", `${url} answers without a health report`, "Check that it is this package's service");
    const { status, workers, storage } = report.data;
    if (status === "ok") return pass("service", `${url} is healthy`);
    const restarting = workers.filter(({ state }) => state === "restarting").map(({ name }) => name);
    const reason = storage.message ?? `restarting: ${restarting.join(", ")}`;
    const severity = status === "unavailable" ? "fail" : "warn";
    return problem(
      severity,
      "service",
      `${url} is ${status}: ${reason}`,
      storage.message === null ? "Read the service's log" : "Free disk space",
    );
  } catch (error) {
    const reason = error instanceof Error && error.cause !== undefined ? messageOf(error.cause) : messageOf(error);
    const remedy =
      source === "WHETSTONE_BASE_URL" ? "Start the service, or correct WHETSTONE_BASE_URL" : "The next command replaces the stale file";
    return problem(
      source === "WHETSTONE_BASE_URL" ? "fail" : "warn",
      "service",
      `${url} (from ${source}) does not answer: ${reason}`,
      remedy,
    );
  }
}

function checkKey({ url, key, keySource }: Target): Promise<Check> {
  return guarded("key", "Read the service's log", async () => {
    if (key === "") return problem("fail", "key", `there is no key in ${keySource}`, "Set WHETSTONE_API_KEY to the key of the service");
    const { status } = await get(`${url}/v1/models`, key);
    if (status === 200) return pass("key", `the key in ${keySource} is valid`);
    const remedy = status === 401 ? "Set WHETSTONE_API_KEY to the key of the service" : "Read the service's log";
    return problem("fail", "key", `the service answers ${status} to the key in ${keySource}`, remedy);
  });
}

function checkVersion({ url }: Target, version: string): Promise<Check> {
  return guarded("version", "Check that the address is of this package's service", async () => {
    const response = await get(`${url}/openapi.json`);
    const { info } = (await response.json()) as { readonly info?: { readonly version?: string } };
    if (info?.version === version) return pass("version", `client and service have version ${version}`);
    const served = info?.version ?? "an unknown version";
    return problem("warn", "version", `the client has version ${version}, the service ${served}`, "Install the same version on both sides");
  });
}
