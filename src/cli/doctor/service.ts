/** Checks of the service that commands use. */
import { readFile } from "node:fs/promises";
import { dataDirectoryAt, readServiceFile } from "../../service/disk/data-directory.ts";
import { messageOf, parseJson } from "../../base/util/values.ts";
import { healthReport } from "../../base/schema/index.ts";
import { type Check, guarded, pass, problem } from "./check.ts";

/** Timeout of one request, milliseconds. */
const TIMEOUT_MS = 5000;

/** Address and key of the service that commands use. */
interface Target {
  readonly url: string;
  /** Source of the address, for remedies. */
  readonly source: string;
  /** API key; empty if none was found. */
  readonly key: string;
  /** Source of the key: a file or an environment variable. */
  readonly keySource: string;
}

/** Returns the service of the environment, else the one that runs on the data directory; null if commands start a service themselves. */
async function findTarget(root: string): Promise<Target | null> {
  const directory = dataDirectoryAt(root);
  const configured = process.env["WHETSTONE_BASE_URL"]?.trim() ?? "";
  const url = configured === "" ? (await readServiceFile(directory.serviceFile))?.url : configured;
  if (url === undefined) return null;
  const address = {
    url: url.replace(/\/+$/u, "").replace(/\/v1$/u, ""),
    source: configured === "" ? directory.serviceFile : "WHETSTONE_BASE_URL",
  };
  const key = process.env["WHETSTONE_API_KEY"]?.trim() ?? "";
  if (key !== "" || configured !== "") return { ...address, key, keySource: "WHETSTONE_API_KEY" };
  const fileKey = await readFile(directory.keyFile, "utf8").catch(() => "");
  return { ...address, key: fileKey.trim(), keySource: directory.keyFile };
}

/** Status and body of a response; the body is null if it is not JSON. */
interface Answer {
  readonly status: number;
  readonly body: unknown;
}

/** Sends a GET request. @param key - API key. @default no key */
async function get(url: string, key?: string): Promise<Answer> {
  const { request } = await import("undici");
  const headers: Record<string, string> = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const { statusCode, body } = await request(url, { headers, signal: AbortSignal.timeout(TIMEOUT_MS) });
  return { status: statusCode, body: parseJson(await body.text()) ?? null };
}

/** Checks that the service of the environment, or of the data directory, answers, accepts the key and has the version of this package. */
export async function checkService(root: string, version: string): Promise<Check[]> {
  const target = await findTarget(root);
  if (target === null) return [pass("service", "none is running; commands start one for their own time")];
  let health: Answer;
  try {
    health = await get(`${target.url}/health`);
  } catch (error) {
    return [unreachable(target, error)];
  }
  return [checkHealth(target, health), await checkKey(target), await checkVersion(target, version)];
}

/** Returns the check of a service that does not answer. */
function unreachable({ url, source }: Target, error: unknown): Check {
  const reason = messageOf(error instanceof Error ? (error.cause ?? error) : error);
  const message = `${url} (from ${source}) does not answer: ${reason}`;
  if (source === "WHETSTONE_BASE_URL") return problem("fail", "service", message, "Start the service, or correct WHETSTONE_BASE_URL");
  return problem("warn", "service", message, "Nothing to do if it was killed: the next service on the data directory replaces the file");
}

/** Checks the health report of the service. */
function checkHealth({ url }: Target, { body }: Answer): Check {
  const report = healthReport.safeParse(body);
  if (!report.success) {
    return problem("fail", "service", `${url} answers without a health report`, "Correct the address: this is not a Whetstone service");
  }
  const { status, workers, storage } = report.data;
  if (status === "ok") return pass("service", `${url} is healthy`);
  const restarting = workers.filter(({ state }) => state === "restarting").map(({ name }) => name);
  const [reason, remedy] =
    storage.message === null ? [`restarting: ${restarting.join(", ")}`, "Read the service's log"] : [storage.message, "Free disk space"];
  return problem(status === "unavailable" ? "fail" : "warn", "service", `${url} is ${status}: ${reason}`, remedy);
}

/** Checks that the service accepts the key. */
function checkKey({ url, key, keySource }: Target): Promise<Check> {
  return guarded("key", "Read the service's log", async () => {
    if (key === "") return problem("fail", "key", `there is no key in ${keySource}`, "Set WHETSTONE_API_KEY to the key of the service");
    const { status } = await get(`${url}/v1/models`, key);
    if (status === 200) return pass("key", `the key in ${keySource} is valid`);
    const remedy = status === 401 ? "Set WHETSTONE_API_KEY to the key of the service" : "Read the service's log";
    return problem("fail", "key", `the service answers ${status} to the key in ${keySource}`, remedy);
  });
}

/** Checks that the service has the version of this package. */
function checkVersion({ url }: Target, version: string): Promise<Check> {
  return guarded("version", "Check that the address is of this package's service", async () => {
    const { body } = await get(`${url}/openapi.json`);
    const info = (body as { readonly info?: { readonly version?: string } } | null)?.info;
    if (info?.version === version) return pass("version", `client and service have version ${version}`);
    const served = info?.version ?? "an unknown version";
    return problem("warn", "version", `the client has version ${version}, the service ${served}`, "Install the same version on both sides");
  });
}
