/** Command `whetstone jobs`: training jobs of a service. */
import { Command, Option } from "commander";
import type { TrainingJobInfo } from "../library/client/index.ts";
import { jobStatus, type JobEvent } from "../base/schema/index.ts";
import { integer } from "./arguments.ts";
import { addConfirmation, confirm, type ConfirmOptions } from "./confirm.ts";
import { serviceCommand, withService, type Connected } from "./connected.ts";
import { EXIT_FAILURE } from "./failure.ts";
import { modelByName, requireExisting, shortName } from "./names.ts";
import { type OutputOptions, printResult } from "./output.ts";
import { type TableColumn, fields, table } from "./table.ts";
import { formatElapsed, formatTime } from "./time.ts";

/** Seconds that one request of `logs --follow` waits for the next event. */
const WAIT_SECONDS = 20;

/** A job with the name of its model; null if the model was deleted. */
type NamedJob = TrainingJobInfo & { readonly model: string | null };

/** Columns of the list. */
const COLUMNS: readonly TableColumn<NamedJob>[] = [
  { title: "ID", cell: ({ id }) => id, isWhole: true },
  { title: "TYPE", cell: ({ type }) => type ?? "-" },
  { title: "MODEL", cell: ({ model }) => model ?? "(deleted)" },
  { title: "STATUS", cell: ({ status }) => status ?? "-" },
  { title: "STEP", cell: ({ step }) => String(step ?? "-"), align: "right" },
  { title: "TOOK", cell: ({ trainingStart, trainingEnd }) => formatElapsed(trainingStart, trainingEnd), align: "right" },
  { title: "CREATED", cell: ({ createdAt }) => formatTime(createdAt) },
];

/** Creates the command `whetstone jobs`, which lists, shows, follows, cancels and deletes training jobs. */
export function jobsCommand(): Command {
  const command = new Command("jobs").description("list, show, follow, cancel and delete training jobs");
  const list = serviceCommand("list", "list training jobs, newest first")
    .option("--model <project/name>", "only jobs of this model")
    .addOption(new Option("--status <status>", "only jobs in this state").choices([...jobStatus.values]))
    .option("--max <number>", "max number of jobs", integer(1), 20)
    .action(listJobs);
  const show = jobCommand("show", "show a job").action(showJob);
  const logs = jobCommand("logs", "print the events of a job; with --follow, exit code 1 if the job fails")
    .option("-f, --follow", "wait for further events until the job ends")
    .action(printLogs);
  const cancel = jobCommand("cancel", "cancel an unfinished job; it leaves no checkpoint").action(cancelJob);
  const remove = jobCommand("delete", "delete a finished job with its events; its checkpoint stays").action(deleteJob);
  command.addCommand(list, { isDefault: true }).addCommand(show).addCommand(logs).addCommand(cancel);
  return command.addCommand(addConfirmation(remove));
}

/** Creates a subcommand that takes the id of a job. */
function jobCommand(name: string, description: string): Command {
  return serviceCommand(name, description).argument("<id>", "id of the job");
}

/** Adds the names of the models to jobs. */
async function withModelNames({ service, signal }: Connected, jobs: readonly TrainingJobInfo[]): Promise<NamedJob[]> {
  const names = new Map((await service.models.listTrainable({ signal })).map((model) => [model.id, shortName(model)]));
  return jobs.map((job) => ({ ...job, model: names.get(job.modelId ?? "") ?? null }));
}

/** Options of `jobs list`. */
interface ListOptions extends OutputOptions {
  readonly model?: string;
  readonly status?: (typeof jobStatus)["value"];
  readonly max: number;
}

async function listJobs({ model, status, max, ...options }: ListOptions): Promise<void> {
  await withService(options, async (connected) => {
    const { service, signal } = connected;
    const modelId = model === undefined ? undefined : (await modelByName(connected, model)).id;
    const jobs = await withModelNames(connected, await service.trainingJobs.list({ modelId, status, max, signal }));
    printResult(options, jobs, () => (jobs.length === 0 ? ["No jobs"] : table(jobs, COLUMNS)));
  });
}

/** Returns a job. @throws NotFoundError `E_NOT_FOUND` if it does not exist. */
function findJob({ service, signal }: Connected, id: string): Promise<TrainingJobInfo> {
  return requireExisting(`job "${id}"`, "jobs list", () => service.trainingJobs.get(id, { signal }));
}

async function showJob(id: string, options: OutputOptions): Promise<void> {
  await withService(options, async (connected) => {
    const [job] = await withModelNames(connected, [await findJob(connected, id)]);
    if (job !== undefined) printResult(options, job, describeJob);
  });
}

/** Returns a job as lines. */
function describeJob(job: NamedJob): string[] {
  return fields({
    id: job.id,
    type: job.type ?? "-",
    model: job.model ?? `${job.modelId ?? "-"} (deleted)`,
    status: job.status ?? "-",
    created: formatTime(job.createdAt),
    started: formatTime(job.trainingStart),
    took: formatElapsed(job.trainingStart, job.trainingEnd),
    checkpoint: job.step === null ? "-" : `step ${job.step}`,
    ...(job.errorMessage === null ? {} : { error: job.errorMessage }),
  });
}

/** Types of the events that end a job. */
const END_EVENTS: ReadonlySet<string> = new Set(["training_ended", "training_failed", "training_cancelled"]);

/** Prints the events of a job so far, and with `follow` the further ones until the job ends. */
async function printLogs(id: string, { follow = false, ...options }: OutputOptions & { readonly follow?: boolean }): Promise<void> {
  await withService(options, async (connected) => {
    const { service, signal } = connected;
    await findJob(connected, id);
    /** Id of the last printed event. */
    let after: string | undefined;
    let isOver = false;
    for (;;) {
      const waitSeconds = follow && !isOver ? WAIT_SECONDS : undefined;
      const page = await service.trainingJobs.events(id, { after, waitSeconds, signal });
      for (const event of page.data) {
        printResult(options, event, () => [describeEvent(event)]);
        isOver ||= END_EVENTS.has(event.type);
      }
      after = page.last_id ?? after;
      if (page.has_more) continue;
      if (isOver || !follow) break;
      // A job that ended without an event of its end, or whose events were deleted, has no further page.
      const { status } = await service.trainingJobs.get(id, { signal });
      isOver = status !== "queued" && status !== "running";
    }
    if (follow && (await service.trainingJobs.get(id, { signal })).status !== "succeeded") process.exitCode = EXIT_FAILURE;
  });
}

/** Returns an event as one line: its type, and its values by name. */
function describeEvent({ type, data }: JobEvent): string {
  const values = Object.entries(data).map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`);
  return [type.replaceAll("_", " "), ...values].join("  ");
}

async function cancelJob(id: string, options: OutputOptions): Promise<void> {
  await withService(options, async (connected) => {
    const { service, signal } = connected;
    await findJob(connected, id);
    printResult(options, await service.trainingJobs.cancel(id, { signal }), ({ status }) => [`Job ${id}: ${status}`]);
  });
}

async function deleteJob(this: Command, id: string, options: ConfirmOptions & OutputOptions): Promise<void> {
  await withService(options, async (connected) => {
    const { service, signal } = connected;
    const { type, status } = await findJob(connected, id);
    if (!(await confirm(this, `Delete the ${status} ${type} job ${id}`, options))) return;
    await service.trainingJobs.delete(id, { signal });
    printResult(options, { id }, () => [`Deleted job ${id}`]);
  });
}
