/** A restore into Postgres in a process of its own, to be killed. */
import { restore } from "../../src/service/stored-files/restore.ts";

const [backup = "", dataDir = "", database = ""] = process.argv.slice(2);
await restore(backup, dataDir, { database });
