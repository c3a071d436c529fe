/** Times of the last use of API keys. */
import { sql } from "kysely";
import { expect, onTestFinished, test } from "vitest";
import { ApiKeys } from "../../../src/service/keys/api-keys.ts";
import { openTestStore } from "../../support/postgres.ts";
import { temporaryDirectory } from "../support.ts";

test("records a time of use later if the database fails", async () => {
  const store = await openTestStore(await temporaryDirectory());
  onTestFinished(() => store.destroy());
  const keys = new ApiKeys(store);
  const warnings: string[] = [];
  const logger = { info: () => {}, warn: (message: string) => void warnings.push(message), error: () => {} };
  const { row, secret } = await keys.create(store, { name: "agent", entity: "local" });
  const stop = keys.startRecording(logger);
  await keys.authenticate(secret);
  await sql`ALTER TABLE api_keys RENAME TO unreadable`.execute(store);
  await stop();
  expect(warnings).toEqual(["The times of the last use of API keys could not be recorded"]);
  await sql`ALTER TABLE unreadable RENAME TO api_keys`.execute(store);
  await keys.startRecording(logger)();
  const recorded = await store.selectFrom("api_keys").select("last_used_at").where("id", "=", row.id).executeTakeFirst();
  expect(recorded?.last_used_at).toEqual(expect.any(String));
});
