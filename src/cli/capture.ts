/** Command `whetstone capture`: runs any program as an agent, and records what it samples as a trajectory. */
import { Command, Option } from "commander";
import { agentLogs, runAgentProcess } from "../library/capture/process.ts";
import { capture } from "../library/capture/index.ts";
import { writeTrajectories } from "../library/dataset/index.ts";
import type { JsonObject } from "../base/schema/index.ts";
import type { Trajectory } from "../base/trajectory/index.ts";
import { BASE_FORMS, jsonObjectArgument, nonNegative, TEMPLATE_KWARGS_DESCRIPTION, TEMPLATE_KWARGS_OPTION } from "./arguments.ts";
import { addDataDir, basePolicy, trainedPolicy, withService } from "./connected.ts";
import { type OutputOptions, printResult } from "./output.ts";

/** Options of the command. */
interface CaptureCommandOptions extends OutputOptions {
  readonly model?: string;
  readonly base?: string;
  readonly out: string;
  readonly reward: "exit-code" | "file" | "agent";
  readonly temperature: number;
  readonly chatTemplateKwargs?: JsonObject;
  readonly timeout?: number;
}

/** Creates the command `whetstone capture -- <command>`, which runs an agent and records its requests as a trajectory. */
export function captureCommand(): Command {
  return addDataDir(new Command("capture"))
    .description("run an agent in a process of its own and record what it samples: `whetstone capture --base <model> -- python3 agent.py`")
    .argument("<command...>", "program and its arguments, after --")
    .option("--model <model[:step]>", "trained model that the agent samples, without a step its newest checkpoint")
    .addOption(
      new Option("--base <model>", `base model that the agent samples instead of a trained model: ${BASE_FORMS}`).conflicts("model"),
    )
    .option("--out <file>", "JSONL file for the trajectory", "trajectory.jsonl")
    .addOption(
      new Option("--reward <source>", "source of the reward: the exit code, the file in WHETSTONE_REWARD_FILE, or the agent's own request")
        .choices(["exit-code", "file", "agent"])
        .default("exit-code"),
    )
    .option("--temperature <number>", "sampling temperature of requests that do not set one", nonNegative, 1)
    .option(TEMPLATE_KWARGS_OPTION, TEMPLATE_KWARGS_DESCRIPTION, jsonObjectArgument)
    .option("--timeout <seconds>", "time limit of the agent", nonNegative)
    .action(captureAgent);
}

/** Runs the command: the agent samples through a session, from which the trajectory is read. */
async function captureAgent(this: Command, command: readonly string[], options: CaptureCommandOptions): Promise<void> {
  const { model, base, out, reward, temperature, chatTemplateKwargs, timeout } = options;
  if (model === undefined && base === undefined)
    this.error("error: expected --model <model[:step]>, or --base <model> to sample a base model", { exitCode: 2 });
  await withService(options, async (connected) => {
    const { service, signal } = connected;
    const policy = model === undefined ? await basePolicy(connected, base as string) : await trainedPolicy(connected, model);
    let agentOutput: ReturnType<typeof agentLogs> = { logs: [], metrics: {} };
    const recorded = await capture.session(service, {
      model: policy.id,
      samplingDefaults: { temperature, chatTemplateKwargs },
      signal,
      ...(timeout === undefined ? {} : { timeoutMs: 1000 * timeout }),
      run: async (session, { signal: sessionSignal }) => {
        // With `--json`, standard output contains only the result.
        const relay = (name: "stdout" | "stderr", text: string) => {
          const stream = name === "stdout" && options.json !== true ? process.stdout : process.stderr;
          stream.write(text);
        };
        const { ended, score } = await runAgentProcess({ command, reward }, session, { signal: sessionSignal, relay });
        agentOutput = agentLogs(ended);
        return score;
      },
    });
    const trajectory: Trajectory = recorded.with(agentOutput);
    await writeTrajectories(out, [trajectory], { signal });
    const { choices } = trajectory;
    const tokens = choices.reduce((sum, { token_ids: ids }) => sum + (ids?.length ?? 0), 0);
    printResult(options, { out, reward: trajectory.reward, turns: choices.length, tokens }, ({ reward: score, turns }) => [
      `${out}: turns ${turns}, sampled tokens ${tokens}, reward ${score}`,
    ]);
  });
}
