/** Command `whetstone models`: trainable models of a service. */
import { Command } from "commander";
import type { ModelSummary } from "../library/client/index.ts";
import { formatBytes } from "../base/util/units.ts";
import { addConfirmation, confirm, type ConfirmOptions } from "./confirm.ts";
import { serviceCommand, withService } from "./connected.ts";
import { modelByName, shortName } from "./names.ts";
import { type OutputOptions, printResult } from "./output.ts";
import { type TableColumn, fields, table } from "./table.ts";
import { formatTime } from "./time.ts";

/** Columns of the list. */
const COLUMNS: readonly TableColumn<ModelSummary>[] = [
  { title: "MODEL", cell: shortName },
  { title: "BASE", cell: ({ baseModel }) => baseModel },
  { title: "ADAPTER", cell: ({ lora }) => (lora === null ? "-" : `rank ${lora.rank}`) },
  { title: "STEP", cell: ({ latestStep }) => String(latestStep ?? "-"), align: "right" },
  { title: "CHECKPOINTS", cell: ({ checkpoints }) => String(checkpoints), align: "right" },
  { title: "SIZE", cell: ({ bytes }) => formatBytes(bytes), align: "right" },
  { title: "CREATED", cell: ({ createdAt }) => formatTime(createdAt) },
];

/** Creates the command `whetstone models`, which lists, shows and deletes trainable models. */
export function modelsCommand(): Command {
  const command = new Command("models").description("list, show and delete trainable models");
  const list = serviceCommand("list", "list the trainable models, newest first, and the base models")
    .option("--project <name>", "only models of this project")
    .action(listModels);
  const show = serviceCommand("show", "show a model").argument("<model>", "project/name or id of the model").action(showModel);
  const remove = serviceCommand("delete", "delete a model with its checkpoints; cancels its unfinished jobs first")
    .argument("<model>", "project/name or id of the model")
    .action(deleteModel);
  return command.addCommand(list, { isDefault: true }).addCommand(show).addCommand(addConfirmation(remove));
}

async function listModels({ project, ...options }: OutputOptions & { readonly project?: string }): Promise<void> {
  await withService(options, async ({ service, signal }) => {
    const models = await service.models.listTrainable({ project, signal });
    const baseModels = await service.baseModels({ signal });
    printResult(options, { models, baseModels }, function* () {
      if (models.length > 0) yield* table(models, COLUMNS);
      else yield "No trainable models yet: `whetstone train` creates one";
      yield `Base models: ${baseModels.join(", ")}`;
    });
  });
}

async function showModel(name: string, options: OutputOptions): Promise<void> {
  await withService(options, async (connected) => {
    printResult(options, await modelByName(connected, name), (model) =>
      fields({
        model: `${model.entity}/${shortName(model)}`,
        id: model.id,
        "base model": model.baseModel,
        adapter: model.lora === null ? "none: all parameters are trained" : `rank ${model.lora.rank}, alpha ${model.lora.alpha}`,
        created: formatTime(model.createdAt),
        "newest step": String(model.latestStep ?? "none"),
        checkpoints: `${model.checkpoints} (${formatBytes(model.bytes)})`,
      }),
    );
  });
}

async function deleteModel(this: Command, name: string, options: ConfirmOptions & OutputOptions): Promise<void> {
  await withService(options, async (connected) => {
    const model = await modelByName(connected, name);
    const size = `${model.checkpoints} checkpoints (${formatBytes(model.bytes)})`;
    if (!(await confirm(this, `Delete model ${shortName(model)} with ${size}`, options))) return;
    const deleted = await connected.service.models.delete(model.id, { signal: connected.signal });
    printResult(options, deleted, ({ deletedCheckpoints }) => [`Deleted model ${shortName(model)} with ${deletedCheckpoints} checkpoints`]);
  });
}
