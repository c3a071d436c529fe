/** Daily use of the service by API keys. */
import { sql } from "kysely";
import { transact } from "./database.ts";
import type { Store } from "./tables.ts";
import type { UsageRow } from "./team-tables.ts";

/** Use of a key on a day. */
export type Use = UsageRow;

/** Adds to the recorded uses. */
export function addUses(store: Store, uses: readonly Use[]): Promise<void> {
  return transact(store, async (transaction) => {
    for (const use of uses) {
      await transaction
        .insertInto("usage")
        .values(use)
        .onConflict((conflict) =>
          conflict.columns(["day", "entity", "key_id"]).doUpdateSet({
            requests: sql<number>`usage.requests + ${use.requests}`,
            prompt_tokens: sql<number>`usage.prompt_tokens + ${use.prompt_tokens}`,
            generated_tokens: sql<number>`usage.generated_tokens + ${use.generated_tokens}`,
          }),
        )
        .execute();
    }
  });
}

/** Selection of {@link recordedUses}. */
export interface UseQuery {
  /** First day in UTC, `YYYY-MM-DD`. */
  readonly since: string;
  /** @default every entity that the store shows */
  readonly entity?: string | undefined;
}

/** Max rows of {@link recordedUses}. */
const MAX_ROWS = 10_000;

/** Returns the recorded uses, the newest day first. */
export async function recordedUses(store: Store, { since, entity }: UseQuery): Promise<Use[]> {
  let query = store.selectFrom("usage").selectAll().where("day", ">=", since).orderBy("day", "desc").orderBy("entity").orderBy("key_id");
  if (entity !== undefined) query = query.where("entity", "=", entity);
  return query.limit(MAX_ROWS).execute();
}
