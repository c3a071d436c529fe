/** Command `whetstone clean`: finds data that nothing needs any more, and deletes it on request. */
import { readdir, rm, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { type Command, Option } from "commander";
import { dataDirectoryAt, defaultDataDirectory, type DataDirectory } from "../service/disk/data-directory.ts";
import { formatBytes } from "../base/util/units.ts";
import { integer } from "./arguments.ts";
import { serviceCommand, withService, type Connected, type ConnectionFlags } from "./connected.ts";
import { shortName } from "./names.ts";
import { printResult } from "./output.ts";
import { table } from "./table.ts";

/** Kinds of data that can be deleted, in the order of the list. */
const KINDS = ["checkpoints", "uploads", "token-reports", "quarantine"] as const;
/** Kind of data that can be deleted. */
type Kind = (typeof KINDS)[number];

/** Age from which an open artifact version counts as an abandoned upload, in milliseconds. */
const ABANDONED_MS = 24 * 3_600_000;

/** Options of the command. */
interface CleanOptions extends ConnectionFlags {
  readonly keep: number;
  readonly only?: readonly Kind[];
  readonly yes?: boolean;
}

/** Group of files or checkpoints that can be deleted. */
interface DeletableItem {
  readonly kind: Kind;
  /** Description for the list. */
  readonly name: string;
  /** Number of files or checkpoints. */
  readonly count: number;
  readonly bytes: number;
  /** Deletes the group. */
  readonly remove: () => Promise<unknown>;
}

/** Creates the command `whetstone clean`, which lists what can be deleted, and with `--yes` deletes it. */
export function cleanCommand(): Command {
  return serviceCommand(
    "clean",
    "list what can be deleted from the disk, and with --yes delete it: old checkpoints, abandoned uploads, token reports, quarantine",
  )
    .option("--keep <number>", "newest checkpoints to keep of each model; step 0 and pinned checkpoints always stay", integer(1), 1)
    .addOption(new Option("--only <kinds...>", "only these kinds").choices(KINDS))
    .option("-y, --yes", "delete everything that is listed")
    .action(clean);
}

/** Runs the command: finds the data of each kind, deletes it with `--yes`, and prints the list. */
async function clean({ keep, only = KINDS, yes = false, ...options }: CleanOptions): Promise<void> {
  await withService(options, async (connected) => {
    // With WHETSTONE_BASE_URL, the files of the service may be on another machine.
    const directory = (process.env["WHETSTONE_BASE_URL"] ?? "") === "" ? dataDirectoryAt(options.dataDir ?? defaultDataDirectory()) : null;
    const find: Readonly<Record<Kind, () => Promise<DeletableItem[]>>> = {
      checkpoints: () => oldCheckpoints(connected, keep),
      uploads: () => abandonedUploads(connected),
      "token-reports": () => tokenReports(connected, directory),
      quarantine: () => quarantined(directory),
    };
    const items: DeletableItem[] = [];
    for (const kind of KINDS) if (only.includes(kind)) items.push(...(await find[kind]()));
    if (yes) for (const { remove } of items) await remove();
    const bytes = items.reduce((sum, item) => sum + item.bytes, 0);
    const result = { deleted: yes, bytes, items: items.map(({ remove: _remove, ...item }) => item) };
    printResult(options, result, function* () {
      if (items.length > 0) yield* table(items, COLUMNS);
      if (items.length === 0) yield "Nothing to delete";
      else yield yes ? `Deleted ${formatBytes(bytes)}` : `Nothing was deleted yet; --yes deletes ${formatBytes(bytes)}`;
    });
  });
}

/** Columns of the list. */
const COLUMNS = [
  { title: "KIND", cell: ({ kind }: DeletableItem) => kind },
  { title: "NAME", cell: ({ name }: DeletableItem) => name },
  { title: "ITEMS", cell: ({ count }: DeletableItem) => String(count), align: "right" },
  { title: "SIZE", cell: ({ bytes }: DeletableItem) => formatBytes(bytes), align: "right" },
] as const;

/** Finds checkpoints that are neither pinned, nor step 0, nor among the newest, of models without an unfinished job. */
async function oldCheckpoints({ service, signal }: Connected, keep: number): Promise<DeletableItem[]> {
  const unfinished = [
    ...(await service.trainingJobs.list({ status: "queued", signal })),
    ...(await service.trainingJobs.list({ status: "running", signal })),
  ];
  const busyModels = new Set(unfinished.map(({ modelId }) => modelId));
  const items: DeletableItem[] = [];
  for (const model of await service.models.listTrainable({ signal })) {
    if (busyModels.has(model.id)) continue;
    const newestFirst = await service.checkpoints.list(model.id, { order: "desc", signal });
    const deletable = newestFirst.slice(keep).filter(({ step, pinned }) => step > 0 && pinned !== true);
    if (deletable.length === 0) continue;
    const steps = deletable.map(({ step }) => step);
    items.push({
      kind: "checkpoints",
      name: `${shortName(model)}: steps ${steps.toReversed().join(", ")}`,
      count: deletable.length,
      bytes: deletable.reduce((sum, { bytes }) => sum + (bytes ?? 0), 0),
      remove: () => service.checkpoints.delete(model.id, steps, { signal }),
    });
  }
  return items;
}

/** Finds artifact versions that were opened a day ago or earlier and never committed. */
async function abandonedUploads({ service, signal }: Connected): Promise<DeletableItem[]> {
  const openVersions = await service.artifacts.list({ state: "open", signal });
  const abandoned = openVersions.filter(({ createdAt }) => Date.now() - Date.parse(createdAt) >= ABANDONED_MS);
  return abandoned.map(({ id, url, fileCount, bytes }) => ({
    kind: "uploads",
    name: url,
    count: fileCount,
    bytes,
    remove: () => service.artifacts.delete(id, { signal }),
  }));
}

/** Finds the token reports of jobs. A report is written at the end of its job, so that none belongs to an unfinished one. */
async function tokenReports({ service, signal }: Connected, directory: DataDirectory | null): Promise<DeletableItem[]> {
  const sizes = directory === null ? [] : await sizesIn(directory.tokens);
  return sizes
    .filter(({ path }) => path.endsWith(".json"))
    .map(({ path, bytes }) => {
      const id = basename(path, ".json");
      return { kind: "token-reports", name: `job ${id}`, count: 1, bytes, remove: () => service.trainingJobs.deleteTokens(id, { signal }) };
    });
}

/** Finds files that the service has moved away because its database does not mention them. */
async function quarantined(directory: DataDirectory | null): Promise<DeletableItem[]> {
  if (directory === null) return [];
  const { quarantine } = directory;
  const sizes = await sizesIn(quarantine);
  if (sizes.length === 0) return [];
  const bytes = sizes.reduce((sum, file) => sum + file.bytes, 0);
  const remove = () => rm(quarantine, { recursive: true, force: true });
  return [{ kind: "quarantine", name: quarantine, count: sizes.length, bytes, remove }];
}

/** Returns the files below a directory with their sizes; none if it does not exist. */
async function sizesIn(directory: string): Promise<{ readonly path: string; readonly bytes: number }[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true }).catch(() => []);
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return Promise.all(files.map(async (path) => ({ path, bytes: (await stat(path)).size })));
}
