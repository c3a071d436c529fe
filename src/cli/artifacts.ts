/** Command `whetstone artifacts`: artifact versions of a service. */
import { Command } from "commander";
import type { ArtifactFileInfo, ArtifactSummary } from "../library/client/index.ts";
import { formatBytes } from "../base/util/units.ts";
import { addConfirmation, confirm, type ConfirmOptions } from "./confirm.ts";
import { serviceCommand, withService } from "./connected.ts";
import { findArtifact } from "./names.ts";
import { type OutputOptions, printResult } from "./output.ts";
import { type TableColumn, fields, table } from "./table.ts";
import { formatTime } from "./time.ts";

/** Columns of the list of versions. */
const COLUMNS: readonly TableColumn<ArtifactSummary>[] = [
  { title: "ARTIFACT", cell: ({ url }) => url, isWhole: true },
  { title: "STATE", cell: ({ state }) => state },
  { title: "FILES", cell: ({ fileCount }) => String(fileCount), align: "right" },
  { title: "SIZE", cell: ({ bytes }) => formatBytes(bytes), align: "right" },
  { title: "CREATED", cell: ({ createdAt }) => formatTime(createdAt) },
];

/** Columns of the files of a version. */
const FILE_COLUMNS: readonly TableColumn<ArtifactFileInfo>[] = [
  { title: "FILE", cell: ({ path }) => path },
  { title: "SIZE", cell: ({ sizeBytes }) => formatBytes(sizeBytes), align: "right" },
  { title: "SHA-256", cell: ({ sha256 }) => sha256 },
];

/** Description of the argument that names a version. */
const ARTIFACT = "project/name:vN, its artifact:/// address, or its id; without a version the newest";

/** Creates the command `whetstone artifacts`, which lists, shows and deletes artifact versions. */
export function artifactsCommand(): Command {
  const command = new Command("artifacts").description("list, show and delete artifact versions: datasets and adapters");
  const list = serviceCommand("list", "list artifact versions, newest first")
    .option("--project <name>", "only artifacts of this project")
    .option("--name <name>", "only versions of the artifact with this name")
    .action(listArtifacts);
  const show = serviceCommand("show", "show a version with its files").argument("<artifact>", ARTIFACT).action(showArtifact);
  const remove = serviceCommand("delete", "delete a version with its files").argument("<artifact>", ARTIFACT);
  command.addCommand(list, { isDefault: true }).addCommand(show);
  return command.addCommand(addConfirmation(remove).action(deleteArtifact));
}

/** Options of `artifacts list`. */
interface ListOptions extends OutputOptions {
  readonly project?: string;
  readonly name?: string;
}

async function listArtifacts({ project, name, ...options }: ListOptions): Promise<void> {
  await withService(options, async ({ service, signal }) => {
    const versions = await service.artifacts.list({ project, name, signal });
    printResult(options, versions, () => (versions.length === 0 ? ["No artifacts"] : table(versions, COLUMNS)));
  });
}

async function showArtifact(text: string, options: OutputOptions): Promise<void> {
  await withService(options, async (connected) => {
    printResult(options, await findArtifact(connected, text), function* ({ url, id, state, createdAt, metadata, files }) {
      yield* fields({ artifact: url, id, state, created: formatTime(createdAt), metadata: JSON.stringify(metadata) });
      yield* table(files, FILE_COLUMNS);
    });
  });
}

async function deleteArtifact(this: Command, text: string, options: ConfirmOptions & OutputOptions): Promise<void> {
  await withService(options, async (connected) => {
    const { id, url, files } = await findArtifact(connected, text);
    const size = formatBytes(files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0));
    if (!(await confirm(this, `Delete ${url} with ${files.length} files (${size})`, options))) return;
    await connected.service.artifacts.delete(id, { signal: connected.signal });
    printResult(options, { id, url }, () => [`Deleted ${url}`]);
  });
}
