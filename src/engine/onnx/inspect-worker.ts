/** Entry of the thread that inspects base models. It loads no native code, so that it can be terminated at any time. */
import { parentPort } from "node:worker_threads";
import { loadTokenizer } from "../../tokenizer/index.ts";
import { readModelConfig } from "./model/config.ts";
import { verifyWeights } from "./verify-weights.ts";
import { describeError } from "./worker-rpc.ts";

/** Result of an inspection: the error that the base model is refused with, or null. */
export interface Inspection {
  readonly error: { readonly name: string; readonly message: string } | null;
}

/** Repetitions of each character in the text that the tokenizer is tried with. */
const TRIAL_LENGTH = 10_000;

/** Long runs of letters, digits, marks, spaces and line ends, each followed by another character. */
const TRIAL = ["a", "A", "é", "字", "1", " ", "\n", " \n", "!", "'", "\u0301", "\0"].map((one) => `${one.repeat(TRIAL_LENGTH)}b!`);

async function inspect(directory: string): Promise<Inspection> {
  try {
    await verifyWeights(directory, await readModelConfig(directory));
    const tokenizer = await loadTokenizer(directory);
    for (const text of TRIAL) tokenizer.encode(text);
    return { error: null };
  } catch (error) {
    return { error: describeError(error) };
  }
}

const port = parentPort!;
port.on("message", (directory: string) => void inspect(directory).then((inspection) => port.postMessage(inspection)));
