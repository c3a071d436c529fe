/** Command `whetstone keys`: API keys, their limits and their usage. */
import { Command, Option } from "commander";
import type { CreatedKeyInfo, EntityLimitsInfo, KeyInfo, KeyUsageInfo } from "../library/client/index.ts";
import { keyScope, type KeyScope } from "../base/schema/index.ts";
import { integer } from "./arguments.ts";
import { addConfirmation, confirm, type ConfirmOptions } from "./confirm.ts";
import { serviceCommand, withService } from "./connected.ts";
import { modelByName } from "./names.ts";
import { type OutputOptions, printResult } from "./output.ts";
import { type TableColumn, fields, table } from "./table.ts";
import { formatTime } from "./time.ts";

const SECONDS_PER_DAY = 86_400;
const SECONDS_PER_HOUR = 3600;

/** Options of the limits that keys and entities have. */
const LIMITS = [
  ["--requests-per-minute <number>", "chat completions per minute"],
  ["--tokens-per-minute <number>", "tokens of prompts and answers per minute"],
  ["--running-choices <number>", "choices that are sampled at a time"],
] as const;

/** Columns of the list of keys. */
const COLUMNS: readonly TableColumn<KeyInfo>[] = [
  { title: "ID", cell: ({ id }) => id, isWhole: true },
  { title: "NAME", cell: ({ name }) => name },
  { title: "ENTITY", cell: entityOf },
  { title: "SCOPES", cell: ({ scopes }) => scopes.join(",") },
  { title: "LIMITS", cell: ({ limits }) => limitsText(limits) },
  { title: "STATUS", cell: ({ status }) => status },
  { title: "EXPIRES", cell: ({ expiresAt }) => (expiresAt === null ? "never" : formatTime(expiresAt)) },
  { title: "LAST USED", cell: ({ lastUsedAt }) => (lastUsedAt === null ? "never" : formatTime(lastUsedAt)) },
];

/** Creates the command `whetstone keys`, which creates, lists, rotates and revokes API keys. */
export function keysCommand(): Command {
  const command = new Command("keys").description("create, list, rotate and revoke API keys of a service");
  const create = serviceCommand("create", "create a key, and print its secret once")
    .argument("<name>", "name of the key, such as the program that uses it")
    .option("--entity <name>", "entity that the key belongs to (default: the entity of your key, or local)")
    .addOption(new Option("--all-entities", "create an administrator of all entities").conflicts(["entity", "scope", "model"]))
    .addOption(new Option("--scope <scopes...>", "rights of the key (default: train sample read)").choices([...keyScope.values]))
    .option("--model <project/name>", "limit the key to one model")
    .option("--expires-in-days <number>", "days until the key expires (default: never)", integer(1))
    .action(createKey);
  addLimits(create);
  const limit = addLimits(serviceCommand("limit", "replace the limits of a key or an entity; omitted limits are removed"))
    .argument("[id]", "id of the key")
    .option("--entity <name>", "limit this entity, over all of its keys, instead of a key")
    .option("--queued-jobs <number>", "unfinished training jobs of an entity", integer(1))
    .option("--stored-bytes <number>", "bytes of artifacts, files and checkpoints of an entity", integer(1))
    .action(limitKey);
  const usage = serviceCommand("usage", "list the daily usage of keys, the newest day first")
    .option("--entity <name>", "only keys of this entity")
    .option("--days <number>", "days up to today, in UTC", integer(1), 30)
    .action(listUsage);
  const list = serviceCommand("list", "list the keys, newest first, without their secrets")
    .option("--entity <name>", "only keys of this entity")
    .action(listKeys);
  const rotate = keyCommand("rotate", "replace the secret of a key, and print the new one once")
    .option("--grace-hours <number>", "hours for which the previous secret is accepted, too", integer(0), 0)
    .action(rotateKey);
  const revoke = keyCommand("revoke", "revoke a key: it is not accepted from then on").action(revokeKey);
  return command
    .addCommand(list, { isDefault: true })
    .addCommand(create)
    .addCommand(rotate)
    .addCommand(limit)
    .addCommand(usage)
    .addCommand(addConfirmation(revoke));
}

/** Creates a subcommand that takes the id of a key. */
function keyCommand(name: string, description: string): Command {
  return serviceCommand(name, description).argument("<id>", "id of the key");
}

/** Adds the options of limits to a subcommand. */
function addLimits(command: Command): Command {
  return LIMITS.reduce((extended, [flag, description]) => extended.option(flag, description, integer(1)), command);
}

/** Returns the entity of a key, or the words for a key of all entities. */
function entityOf({ entity }: KeyInfo): string {
  return entity ?? "(all)";
}

/** Options of {@link LIMITS}. */
interface LimitOptions extends OutputOptions, Pick<EntityLimitsInfo, "requestsPerMinute" | "tokensPerMinute" | "runningChoices"> {}

/** Options of `keys create`. */
interface CreateOptions extends LimitOptions {
  readonly entity?: string;
  readonly allEntities?: boolean;
  readonly scope?: readonly KeyScope[];
  readonly model?: string;
  readonly expiresInDays?: number;
}

async function createKey(name: string, options: CreateOptions): Promise<void> {
  const { entity, allEntities = false, scope: scopes, model, expiresInDays: days } = options;
  const { requestsPerMinute, tokensPerMinute, runningChoices } = options;
  const limits = { requestsPerMinute, tokensPerMinute, runningChoices };
  await withService(options, async (connected) => {
    const onlyModel = model === undefined ? undefined : await modelByName(connected, model);
    const owner = allEntities ? { entity: null, scopes: ["admin"] as const } : { entity: entity ?? onlyModel?.entity, scopes };
    const { service, signal } = connected;
    const expiresInSeconds = days === undefined ? undefined : days * SECONDS_PER_DAY;
    const created = await service.keys.create({ name, ...owner, modelId: onlyModel?.id, expiresInSeconds, limits, signal });
    printResult(options, created, describeSecret);
  });
}

/** Describes a key with its secret. */
function describeSecret(created: CreatedKeyInfo): string[] {
  const { id, name, scopes, modelId, expiresAt, key } = created;
  const lines = fields({
    key: name,
    id,
    entity: entityOf(created),
    scopes: scopes.join(", "),
    ...(modelId === null ? {} : { model: modelId }),
    expires: expiresAt === null ? "never" : formatTime(expiresAt),
    limits: limitsText(created.limits),
    secret: key,
  });
  return [...lines, "The secret is shown once. Clients send it as their API key, for example in WHETSTONE_API_KEY"];
}

async function listKeys({ entity, ...options }: OutputOptions & { readonly entity?: string }): Promise<void> {
  await withService(options, async ({ service, signal }) => {
    const keys = await service.keys.list({ entity, signal });
    printResult(options, keys, () => (keys.length === 0 ? ["No keys yet: `whetstone keys create` makes one"] : table(keys, COLUMNS)));
  });
}

/** Options of `keys limit`. */
interface LimitKeyOptions extends LimitOptions, Pick<EntityLimitsInfo, "queuedJobs" | "storedBytes"> {
  readonly entity?: string;
}

async function limitKey(this: Command, id: string | undefined, options: LimitKeyOptions): Promise<void> {
  const { entity, requestsPerMinute, tokensPerMinute, runningChoices, queuedJobs, storedBytes } = options;
  const limits = { requestsPerMinute, tokensPerMinute, runningChoices };
  if ((id === undefined) === (entity === undefined))
    this.error("error: expected the id of a key, or --entity <name>, and not both", { exitCode: 2 });
  const hasEntityLimit = queuedJobs !== undefined || storedBytes !== undefined;
  if (id !== undefined && hasEntityLimit)
    this.error("error: expected --queued-jobs and --stored-bytes with --entity <name> alone: jobs and data belong to entities", {
      exitCode: 2,
    });
  await withService(options, async ({ service, signal }) => {
    const changed =
      id === undefined
        ? await service.entities.setLimits(entity!, { ...limits, queuedJobs, storedBytes }, { signal })
        : await service.keys.setLimits(id, limits, { signal });
    const owner: Record<string, string> = "name" in changed ? { key: changed.name } : { entity: changed.id };
    printResult(options, changed, () => fields({ ...owner, ...limitTexts(changed.limits) }));
  });
}

/** Returns the words of a limit's name, such as "running choices". */
function limitWords(name: string): string {
  return name.replaceAll(/[A-Z]/gu, (letter) => ` ${letter.toLowerCase()}`);
}

/** Returns the limits that are set as one text, for a cell of the table. */
function limitsText(limits: EntityLimitsInfo): string {
  const setLimits = Object.entries(limits).filter(([, value]) => typeof value === "number");
  return setLimits.length === 0 ? "none" : setLimits.map(([name, value]) => `${value} ${limitWords(name)}`).join(", ");
}

/** Returns all limits as texts by name, for a list of fields. */
function limitTexts(limits: EntityLimitsInfo): Record<string, string> {
  return Object.fromEntries(
    Object.entries(limits).map(([name, value]: [string, number | null]) => [limitWords(name), value === null ? "no limit" : String(value)]),
  );
}

/** Columns of the list of usage. */
const USAGE_COLUMNS: readonly TableColumn<KeyUsageInfo>[] = [
  { title: "DAY", cell: ({ day }) => day },
  { title: "ENTITY", cell: ({ entity }) => (entity === "" ? "(all)" : entity) },
  { title: "KEY", cell: ({ keyId }) => keyId, isWhole: true },
  { title: "REQUESTS", cell: ({ requests }) => String(requests) },
  { title: "PROMPT TOKENS", cell: ({ promptTokens }) => String(promptTokens) },
  { title: "GENERATED TOKENS", cell: ({ generatedTokens }) => String(generatedTokens) },
];

async function listUsage({ entity, days, ...options }: OutputOptions & { readonly entity?: string; readonly days: number }): Promise<void> {
  await withService(options, async ({ service, signal }) => {
    const usage = await service.entities.usage({ entity, days, signal });
    printResult(options, usage, () =>
      usage.length === 0 ? ["No usage yet: requests with the key of the service are not recorded"] : table(usage, USAGE_COLUMNS),
    );
  });
}

async function rotateKey(id: string, { graceHours, ...options }: OutputOptions & { readonly graceHours: number }): Promise<void> {
  await withService(options, async ({ service, signal }) => {
    printResult(options, await service.keys.rotate(id, { graceSeconds: graceHours * SECONDS_PER_HOUR, signal }), describeSecret);
  });
}

async function revokeKey(this: Command, id: string, options: ConfirmOptions & OutputOptions): Promise<void> {
  if (!(await confirm(this, `Revoke the key ${id}`, options))) return;
  await withService(options, async ({ service, signal }) => {
    printResult(options, await service.keys.revoke(id, { signal }), ({ name }) => [`Revoked the key ${name} (${id})`]);
  });
}
