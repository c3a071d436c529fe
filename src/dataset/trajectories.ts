import { DataError } from "../errors.ts";
import { requestMessage, tool, type RequestMessage, type Tool } from "../schema/index.ts";
import { Trajectory } from "../trajectory/index.ts";
import { readJsonLines, writeJsonLines, type ReadOptions, type WriteOptions, type WrittenFile } from "./jsonl.ts";

/** A conversation to learn from by example: every assistant message in it is trained. */
export interface ChatExample {
  readonly messages: readonly RequestMessage[];
  readonly tools?: readonly Tool[] | undefined;
}

/**
 * Trajectories of a JSON Lines file, lazily, with everything they hold: token ids, log-probabilities, other writers' keys.
 *
 * @throws DataError `E_DATA` with file and line.
 */
export async function* readTrajectories(path: string, options: ReadOptions = {}): AsyncGenerator<Trajectory, void, undefined> {
  for await (const { line, value } of readJsonLines(path, options)) {
    const hint = notATrajectory(value);
    if (hint !== null) throw new DataError(`${path}:${line}: ${hint}`);
    let trajectory: Trajectory;
    try {
      trajectory = Trajectory.fromJSON(value);
    } catch (error) {
      throw new DataError(`${path}:${line}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
    }
    yield trajectory;
  }
}

/**
 * Writes trajectories, one per line; all or nothing.
 *
 * @throws DataError `E_DATA`.
 */
export function writeTrajectories(
  path: string,
  trajectories: Iterable<Trajectory> | AsyncIterable<Trajectory>,
  options: WriteOptions = {},
): Promise<WrittenFile> {
  return writeJsonLines(path, trajectories, options);
}

/**
 * Writes `{messages, tools?}` per line, the plain format that other trainers read. Rewards, token ids and log-probabilities
 * are left out: keep {@link writeTrajectories} for those.
 *
 * @throws DataError `E_DATA`.
 */
export function writeChatJsonl(
  path: string,
  examples: Iterable<Trajectory | ChatExample> | AsyncIterable<Trajectory | ChatExample>,
  options: WriteOptions = {},
): Promise<WrittenFile> {
  const lines = async function* () {
    let index = 0;
    for await (const example of examples) {
      const { messages, tools } = toExample(example);
      checkExample(messages, tools, ++index);
      yield tools.length === 0 ? { messages } : { messages, tools };
    }
  };
  return writeJsonLines(path, lines(), options);
}

/**
 * A trajectory of plain context, for examples that nobody sampled.
 *
 * @throws DataError `E_DATA` when a message or tool does not fit.
 */
export function trajectoryOf(example: Trajectory | ChatExample, index: number): Trajectory {
  if (example instanceof Trajectory) return example;
  const { messages, tools } = toExample(example);
  checkExample(messages, tools, index);
  return Trajectory.fromJSON({ messages_and_choices: messages, tools: tools.length === 0 ? null : tools });
}

function toExample(example: Trajectory | ChatExample): { readonly messages: readonly RequestMessage[]; readonly tools: readonly Tool[] } {
  if (example instanceof Trajectory) return { messages: example.messages(), tools: example.tools };
  return { messages: example.messages, tools: example.tools ?? [] };
}

function checkExample(messages: readonly RequestMessage[], tools: readonly Tool[], index: number): void {
  if (!Array.isArray(messages) || messages.length === 0)
    throw new DataError(`Example ${index}: expected \`messages\` to be an array of at least one message`);
  messages.forEach((message, at) => {
    if (!requestMessage.safeParse(message).success)
      throw new DataError(`Example ${index}: \`messages.${at}\` is no message; expected at least a \`role\` and \`content\``);
  });
  tools.forEach((each, at) => {
    if (!tool.safeParse(each).success) throw new DataError(`Example ${index}: \`tools.${at}\` is no function tool`);
  });
  if (!messages.some((message) => message.role === "assistant")) {
    throw new DataError(`Example ${index}: expected at least one assistant message; there is nothing to train in it`);
  }
}

/** Every field of a trajectory has a default, so that anything would pass for an empty one: the common confusions are named. */
function notATrajectory(value: unknown): string | null {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return "expected a trajectory object";
  if ("messages_and_choices" in value) return null;
  if ("trajectories" in value) return "expected a trajectory, got a trajectory group; write its trajectories one per line";
  if ("messages" in value) return "expected a trajectory with `messages_and_choices`, got a chat example with `messages`";
  return "expected a trajectory with `messages_and_choices`";
}
