/** A sweep in a process that kills itself at an event of a cell's run: `sweep-host.ts <url> <key> <directory> <cell> <event>`. */
import { connect } from "whetstone";
import { trainingSweep } from "./training-sweep.ts";

const [, , baseUrl = "", apiKey = "", dir = "", name, type] = process.argv;
await trainingSweep(await connect({ baseUrl, apiKey }), dir, (cell, event) => {
  if (cell === name && event.type === type) process.kill(process.pid, "SIGKILL");
});
