#!/usr/bin/env node
import { onClosedOutput } from "../util/output.ts";
import { run } from "./program.ts";

/** Exit code of a program that SIGPIPE ended. */
const CLOSED_OUTPUT = 141;

onClosedOutput(() => process.exit(CLOSED_OUTPUT));
process.exitCode = await run(process.argv.slice(2));
