/** Command `whetstone audit`: records of a service's audit log. */
import type { Command } from "commander";
import type { AuditRecord } from "../library/client/index.ts";
import { integer } from "./arguments.ts";
import { serviceCommand, withService } from "./connected.ts";
import { type OutputOptions, printResult } from "./output.ts";
import { type TableColumn, table } from "./table.ts";
import { formatTime } from "./time.ts";

/** Columns of the list. */
const COLUMNS: readonly TableColumn<AuditRecord>[] = [
  { title: "TIME", cell: ({ createdAt }) => formatTime(createdAt) },
  { title: "ENTITY", cell: ({ entity }) => entity },
  { title: "KEY", cell: ({ keyId }) => keyId },
  { title: "ACTION", cell: ({ action }) => action },
  { title: "OBJECT", cell: ({ object }) => object ?? "-", isWhole: true },
  { title: "STATUS", cell: ({ status }) => String(status ?? "unknown"), align: "right" },
];

/** Options of the command. */
interface AuditOptions extends OutputOptions {
  readonly action?: string;
  readonly entity?: string;
  readonly max: number;
}

/** Creates the command `whetstone audit`, which lists the records of the audit log. */
export function auditCommand(): Command {
  return serviceCommand("audit", "list who created, trained, cancelled, downloaded and deleted what, newest first")
    .option("--action <name>", "only actions of this operation id, such as deleteModel")
    .option("--entity <name>", "only actions of this entity")
    .option("--max <number>", "max number of records", integer(1), 50)
    .action(listRecords);
}

async function listRecords({ action, entity, max, ...options }: AuditOptions): Promise<void> {
  await withService(options, async ({ service, signal }) => {
    const records = await service.auditLog({ action, entity, max, signal });
    printResult(options, records, () => (records.length === 0 ? ["No records"] : table(records, COLUMNS)));
  });
}
