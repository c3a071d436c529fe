/** Command `whetstone checkpoints`: checkpoints of one model. */
import { Command, InvalidArgumentError } from "commander";
import type { ModelCheckpoint } from "../library/client/index.ts";
import { NotFoundError } from "../base/errors.ts";
import { formatBytes } from "../base/util/units.ts";
import { addConfirmation, confirm, type ConfirmOptions } from "./confirm.ts";
import { serviceCommand, withService } from "./connected.ts";
import { checkpointByName, modelByName, shortName } from "./names.ts";
import { type OutputOptions, printResult } from "./output.ts";
import { type TableColumn, fields, table } from "./table.ts";
import { formatTime } from "./time.ts";

/** Columns of the list of checkpoints. */
const COLUMNS: readonly TableColumn<ModelCheckpoint>[] = [
  { title: "STEP", cell: ({ step }) => String(step), align: "right" },
  { title: "JOB", cell: ({ lineage }) => lineage?.jobType ?? "-" },
  { title: "PARENT", cell: ({ lineage }) => lineage?.parent ?? "base model" },
  { title: "SIZE", cell: ({ bytes }) => (bytes === null ? "-" : formatBytes(bytes)), align: "right" },
  { title: "PINNED", cell: ({ pinned }) => (pinned === true ? "yes" : "") },
  { title: "CREATED", cell: ({ createdAt }) => formatTime(createdAt) },
];

/** Max number of steps in a range. */
const MAX_RANGE = 100_000;

/** Parses a step or a range of steps, `3` or `5-9`, and adds it to the steps of the previous arguments. */
function parseSteps(text: string, previous: readonly number[] = []): number[] {
  const [, fromText = "", toText = fromText] = /^(\d{1,9})(?:-(\d{1,9}))?$/u.exec(text) ?? [];
  const [from, to] = [Number(fromText), Number(toText)];
  const count = to - from + 1;
  if (fromText === "" || count < 1 || count > MAX_RANGE)
    throw new InvalidArgumentError(`Expected a step such as 3, or a range such as 5-9 of at most ${MAX_RANGE} steps.`);
  return [...previous, ...Array.from({ length: count }, (_, index) => from + index)];
}

/** Creates the command `whetstone checkpoints`, which lists, shows and deletes the checkpoints of a model. */
export function checkpointsCommand(): Command {
  const command = new Command("checkpoints").description("list, show and delete the checkpoints of a model");
  const list = serviceCommand("list", "list the checkpoints of a model, newest first")
    .argument("<model>", "project/name or id of the model")
    .action(listCheckpoints);
  const show = serviceCommand("show", "show a checkpoint with its metrics")
    .argument("<model[:step]>", "model, and step of the checkpoint; without a step the newest")
    .action(showCheckpoint);
  const remove = serviceCommand("delete", "delete checkpoints of a model")
    .argument("<model>", "project/name or id of the model")
    .argument("<steps...>", "steps and ranges of steps, such as 3 5-9", parseSteps)
    .action(deleteCheckpoints);
  return command.addCommand(list, { isDefault: true }).addCommand(show).addCommand(addConfirmation(remove));
}

async function listCheckpoints(name: string, options: OutputOptions): Promise<void> {
  await withService(options, async (connected) => {
    const model = await modelByName(connected, name);
    const checkpoints = await connected.service.checkpoints.list(model.id, { order: "desc", signal: connected.signal });
    printResult(options, { model, checkpoints }, function* () {
      yield* table(checkpoints, COLUMNS);
      yield `${checkpoints.length} checkpoints of ${shortName(model)}, ${formatBytes(model.bytes)}`;
    });
  });
}

async function showCheckpoint(text: string, options: OutputOptions): Promise<void> {
  await withService(options, async (connected) => {
    const { summary: model, policy } = await checkpointByName(connected, text);
    const checkpoint = await connected.service.checkpoints.get(model.id, policy.step, { signal: connected.signal });
    printResult(options, checkpoint, function* ({ id, step, lineage, pinned, bytes, createdAt, metrics }) {
      yield* fields({
        checkpoint: `${model.entity}/${shortName(model)}:step${step}`,
        id,
        created: formatTime(createdAt),
        size: bytes === null ? "-" : formatBytes(bytes),
        pinned: pinned === true ? "yes" : "no",
        parent: lineage?.parent ?? `base model ${model.baseModel}`,
        job: lineage?.jobId ?? "-",
      });
      if (Object.keys(metrics).length > 0) yield "metrics";
      const rows = Object.entries(metrics).toSorted(([a], [b]) => (a < b ? -1 : 1));
      yield* fields(Object.fromEntries(rows.map(([metric, value]) => [`  ${metric}`, String(value)])));
    });
  });
}

async function deleteCheckpoints(
  this: Command,
  name: string,
  steps: readonly number[],
  options: ConfirmOptions & OutputOptions,
): Promise<void> {
  await withService(options, async (connected) => {
    const { service, signal } = connected;
    const model = await modelByName(connected, name);
    const existing = (await service.checkpoints.list(model.id, { signal })).filter(({ step }) => steps.includes(step));
    if (existing.length === 0)
      throw new NotFoundError(`The model "${shortName(model)}" has no checkpoint at these steps; list them with \`checkpoints list\``, {
        param: "steps",
      });
    const size = formatBytes(existing.reduce((sum, { bytes }) => sum + (bytes ?? 0), 0));
    if (!(await confirm(this, `Delete ${existing.length} checkpoints of ${shortName(model)} (${size})`, options))) return;
    const deleted = await service.checkpoints.delete(model.id, steps, { signal });
    printResult(options, deleted, ({ deletedCount }) => [`Deleted ${deletedCount} checkpoints of ${shortName(model)}`]);
  });
}
