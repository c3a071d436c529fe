/** Command `whetstone upstreams`: servers that sample for a service. */
import { setTimeout as sleep } from "node:timers/promises";
import { Command } from "commander";
import type { UpstreamInfo } from "../library/client/index.ts";
import { serviceCommand, withService } from "./connected.ts";
import { type OutputOptions, printResult } from "./output.ts";
import { table, type TableColumn } from "./table.ts";

/** Interval in milliseconds at which `drain --wait` reads the number of requests in progress. */
const POLL_MS = 500;

/** Columns of the list. */
const COLUMNS: readonly TableColumn<UpstreamInfo>[] = [
  { title: "URL", cell: ({ url }) => url, isWhole: true },
  { title: "STATUS", cell: ({ status }) => status },
  { title: "RUNNING", cell: ({ running }) => String(running) },
];

/** Creates the command `whetstone upstreams`, which lists, drains and resumes the servers that a service forwards to. */
export function upstreamsCommand(): Command {
  const list = serviceCommand("list", "list the upstream servers of a service, with their requests in progress").action(listServers);
  const drain = serviceCommand("drain", "send no further requests to an upstream server, before it is restarted")
    .argument("<url>", "address of the server, as `whetstone upstreams` lists it")
    .option("--wait", "wait until the server has no requests in progress")
    .action(drainServer);
  const resume = serviceCommand("resume", "send requests to a drained upstream server again")
    .argument("<url>", "address of the server, as `whetstone upstreams` lists it")
    .action(resumeServer);
  return new Command("upstreams")
    .description("list, drain and resume the servers that sample for a service")
    .addCommand(list, { isDefault: true })
    .addCommand(drain)
    .addCommand(resume);
}

/** Returns the servers as a table, or a remedy without any. */
function describeServers(servers: readonly UpstreamInfo[]): string[] {
  if (servers.length === 0) return ["The service has no upstream servers: `whetstone serve --upstream <url>` adds them"];
  return table(servers, COLUMNS);
}

async function listServers(options: OutputOptions): Promise<void> {
  await withService(options, async ({ service, signal }) =>
    printResult(options, await service.upstreams.list({ signal }), describeServers),
  );
}

async function drainServer(url: string, { wait = false, ...options }: OutputOptions & { readonly wait?: boolean }): Promise<void> {
  await withService(options, async ({ service, signal }) => {
    let servers = await service.upstreams.drain(url, { signal });
    while (wait && servers.some((server) => server.url === url && server.running > 0)) {
      await sleep(POLL_MS, undefined, { signal });
      servers = await service.upstreams.list({ signal });
    }
    printResult(options, servers, describeServers);
  });
}

async function resumeServer(url: string, options: OutputOptions): Promise<void> {
  await withService(options, async ({ service, signal }) =>
    printResult(options, await service.upstreams.resume(url, { signal }), describeServers),
  );
}
