/** Page of API keys, entities and their usage. */
import { useState } from "preact/hooks";
import type { ApiKey, ApiKeyList, Entity, EntityLimits, EntityList, KeyUsage, KeyUsageList } from "../../../base/schema/index.ts";
import { type Column, DataTable } from "../components/table.tsx";
import { bytes } from "../components/time.ts";
import { ConfirmButton } from "./confirm-button.tsx";
import { send, useResource } from "./requests.ts";
import { Loaded, Problem, State, updatedColumn } from "./status.tsx";

/** Max keys and entities in a list. */
const PAGE_ROWS = 100;
/** Days of the listed usage, up to today. */
const USAGE_DAYS = 30;

/** Formats a count with thousands separators. */
const separated = (value: number) => value.toLocaleString("en");

/** Texts of the limits, in the order in which they are shown. */
const LIMIT_TEXTS: Readonly<Record<keyof EntityLimits, (limit: number) => string>> = {
  requests_per_minute: (limit) => `${separated(limit)} requests/min`,
  tokens_per_minute: (limit) => `${separated(limit)} tokens/min`,
  running_choices: (limit) => `${separated(limit)} running choices`,
  queued_jobs: (limit) => `${separated(limit)} unfinished jobs`,
  stored_bytes: bytes,
};

/** API keys of the service, its entities with their limits, and the use of the last days. */
export function KeysPage() {
  const [version, setVersion] = useState(0);
  const [failure, setFailure] = useState<Error | null>(null);
  const keys = useResource<ApiKeyList>(`/v1/preview/keys?limit=${PAGE_ROWS}`, version);
  const entities = useResource<EntityList>(`/v1/preview/entities?limit=${PAGE_ROWS}`, version);
  const usage = useResource<KeyUsageList>(`/v1/preview/usage?days=${USAGE_DAYS}`, version);
  const names = new Map(keys.value?.data.map(({ id, name }) => [`key:${id}`, name]));
  const revoke = async (id: string) => {
    setFailure(null);
    await send(`/v1/preview/keys/${encodeURIComponent(id)}`, { method: "DELETE" }).catch(setFailure);
    setVersion((before) => before + 1);
  };
  return (
    <section aria-labelledby="keys-title">
      <h1 id="keys-title">Keys</h1>
      {failure && <Problem error={failure} />}
      <Loaded resource={keys} what="keys">
        {({ data, has_more: hasMore }) =>
          data.length === 0 ? (
            <p class="empty">
              No key has been created: the service has one user, with its own key. <code>whetstone keys create</code> makes a key for
              another one.
            </p>
          ) : (
            <>
              <KeyTable keys={data} onRevoke={(id) => void revoke(id)} />
              {hasMore && <p class="left-out">{`The newest ${PAGE_ROWS} keys are shown. whetstone keys lists all of them.`}</p>}
            </>
          )
        }
      </Loaded>
      <h2>Entities</h2>
      <Loaded resource={entities} what="entities">
        {({ data }) =>
          data.length === 0 ? <p class="empty">No entity has a key, a model, an artifact or limits.</p> : <EntityTable entities={data} />
        }
      </Loaded>
      <h2>{`Use in ${USAGE_DAYS} days`}</h2>
      <Loaded resource={usage} what="use of keys">
        {({ data }) =>
          data.length === 0 ? (
            <p class="empty">No key was used. Use is recorded once a minute.</p>
          ) : (
            <UsageTable uses={totals(data)} names={names} />
          )
        }
      </Loaded>
    </section>
  );
}

/** Returns the limits as a list of texts. */
function limitTexts(limits: EntityLimits): string[] {
  const names = Object.keys(LIMIT_TEXTS) as (keyof EntityLimits)[];
  return names.flatMap((name) => (typeof limits[name] === "number" ? [LIMIT_TEXTS[name](limits[name])] : []));
}

/** Limits as one text. */
function Limits({ limits }: { readonly limits: EntityLimits }) {
  const texts = limitTexts(limits);
  return texts.length === 0 ? "none" : texts.join(", ");
}

/** Table of keys. */
function KeyTable({ keys, onRevoke }: { readonly keys: readonly ApiKey[]; readonly onRevoke: (id: string) => void }) {
  const now = Date.now();
  const columns: Column<ApiKey>[] = [
    {
      label: "Key",
      isHead: true,
      cell: ({ id, name }) => (
        <>
          {name}
          <small title={id}>{id.slice(0, 8)}</small>
        </>
      ),
    },
    { label: "State", cell: ({ status }) => <State name={status} /> },
    { label: "Entity", isLabeled: true, cell: ({ entity }) => entity ?? "all" },
    { label: "Scopes", isLabeled: true, cell: ({ scopes }) => scopes.join(", ") },
    { label: "Limits", isLabeled: true, cell: ({ limits }) => <Limits limits={limits} /> },
    updatedColumn("Last used", now, ({ last_used_at: used }) => used),
    {
      label: "Actions",
      kind: "hidden",
      class: "num",
      cell: ({ id, name, status }) =>
        status === "active" && (
          <ConfirmButton label="Revoke" question="Revoke key?" object={`key ${name}`} onConfirm={() => onRevoke(id)} />
        ),
    },
  ];
  return (
    <div class="table-card">
      <DataTable class="list keys" columns={columns} rows={keys} keyOf={({ id }) => id} />
    </div>
  );
}

/** Table of entities. */
function EntityTable({ entities }: { readonly entities: readonly Entity[] }) {
  const columns: Column<Entity>[] = [
    { label: "Entity", isHead: true, cell: ({ id }) => id },
    { label: "Limits", isLabeled: true, cell: ({ limits }) => <Limits limits={limits} /> },
    { label: "Running choices", kind: "number", isLabeled: true, cell: ({ running_choices: running }) => separated(running) },
    { label: "Unfinished jobs", kind: "number", isLabeled: true, cell: ({ queued_jobs: jobs }) => separated(jobs) },
    { label: "Stored", kind: "number", isLabeled: true, cell: (each) => bytes(each.stored_bytes) },
  ];
  return (
    <div class="table-card">
      <DataTable class="list entities" columns={columns} rows={entities} keyOf={({ id }) => id} />
    </div>
  );
}

/** Usage of a key over all days. */
type Total = Omit<KeyUsage, "day">;

/** Returns the use of each key over all days, the largest number of sampled tokens first. */
function totals(uses: readonly KeyUsage[]): Total[] {
  const sums = new Map<string, Total>();
  for (const { day: _, ...use } of uses) {
    const name = `${use.entity} ${use.key_id}`;
    const previous = sums.get(name);
    const sum = (member: "requests" | "prompt_tokens" | "generated_tokens") => (previous?.[member] ?? 0) + use[member];
    sums.set(name, { ...use, requests: sum("requests"), prompt_tokens: sum("prompt_tokens"), generated_tokens: sum("generated_tokens") });
  }
  return [...sums.values()].toSorted((a, b) => b.generated_tokens - a.generated_tokens);
}

/** Table of usage by key. */
function UsageTable({ uses, names }: { readonly uses: readonly Total[]; readonly names: ReadonlyMap<string, string> }) {
  const columns: Column<Total>[] = [
    { label: "Key", isHead: true, cell: ({ key_id: id }) => names.get(id) ?? (id.startsWith("sessions:") ? "sessions" : id) },
    { label: "Entity", isLabeled: true, cell: ({ entity }) => (entity === "" ? "all" : entity) },
    { label: "Requests", kind: "number", isLabeled: true, cell: ({ requests }) => separated(requests) },
    { label: "Prompt tokens", kind: "number", isLabeled: true, cell: ({ prompt_tokens: tokens }) => separated(tokens) },
    { label: "Sampled tokens", kind: "number", isLabeled: true, cell: ({ generated_tokens: tokens }) => separated(tokens) },
  ];
  return (
    <div class="table-card">
      <DataTable class="list usage" columns={columns} rows={uses} keyOf={({ key_id: id, entity }) => `${entity} ${id}`} />
    </div>
  );
}
