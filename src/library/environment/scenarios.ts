/** Order and ids of an environment's scenarios. */
import { createHash } from "node:crypto";
import { ArgumentError } from "../../base/errors.ts";
import { checkInteger, refuse } from "../../base/util/values.ts";
import { uniform } from "../../base/util/rng.ts";
import type { Environment, ScenarioSource } from "./environment.ts";

/** Options of {@link trainScenarios}. */
export interface TrainScenariosOptions {
  /** Seed of the order of a list; an integer. @default 0 */
  readonly seed?: number | undefined;
  /** Index of the first scenario, at least 0: the number of scenarios taken before. @default 0 */
  readonly from?: number | undefined;
  /** Number of scenarios, at least 0. */
  readonly count: number;
}

/** RNG domain of the scenario order; other draws with the same seed use other domains. */
const ORDER_DOMAIN = 0x5ce4a210;

/**
 * Returns the scenarios `from … from + count − 1` of a training run. Pure: the result depends only on the arguments. A list is reshuffled
 * for every pass, and each pass contains every scenario once; a function is called with the index.
 *
 * @param source - List of scenarios, or a function of the index.
 * @param options - Seed of the order, first index and number of scenarios.
 * @returns `count` scenarios; the objects of the list, not copies.
 * @throws ArgumentError `E_ARGUMENT` for an empty list, or numbers that are not integers of at least 0.
 * @example
 * ```ts
 * trainScenarios(["a", "b", "c"], { seed: 7, from: 0, count: 6 }); // each twice, one whole pass after the other
 * ```
 */
export function trainScenarios<S>(source: ScenarioSource<S>, { seed = 0, from = 0, count }: TrainScenariosOptions): S[] {
  if (!Number.isSafeInteger(seed)) refuse("seed", "an integer", seed);
  checkInteger("from", from, 0);
  checkInteger("count", count, 0);
  if (typeof source === "function") return Array.from({ length: count }, (_, index) => source(from + index));
  if (source.length === 0) throw new ArgumentError("There are no scenarios to take from: the list is empty", { param: "scenarios" });
  const scenarios: S[] = [];
  while (scenarios.length < count) {
    const nextIndex = from + scenarios.length;
    const passOrder = orderOf(source, seed, Math.floor(nextIndex / source.length));
    const start = nextIndex % source.length;
    scenarios.push(...passOrder.slice(start, start + count - scenarios.length));
  }
  return scenarios;
}

/** Returns the list in the order of one pass over it (Fisher-Yates shuffle). @param pass - Number of the pass, from 0. */
function orderOf<S>(source: readonly S[], seed: number, pass: number): S[] {
  const order = [...source];
  for (let last = order.length - 1; last > 0; last--) {
    const other = Math.floor(uniform(BigInt(seed), pass, last, ORDER_DOMAIN) * (last + 1));
    [order[last], order[other]] = [order[other] as S, order[last] as S];
  }
  return order;
}

/**
 * Returns the ID of a scenario: the result of the environment's `scenarioId` if defined, else the scenario's string `id`, else the first 16
 * hex digits of the SHA-256 of its JSON.
 *
 * @param environment - Environment to which the scenario belongs.
 * @param scenario - Scenario that has a JSON form.
 * @returns a non-empty string, the same in every process.
 * @throws ArgumentError `E_ARGUMENT` if the ID is not a string or is empty.
 * @example
 * ```ts
 * const ids = environment.scenarios.eval.map((scenario) => scenarioIdOf(environment, scenario));
 * ```
 */
export function scenarioIdOf<S>(environment: Pick<Environment<S>, "name" | "scenarioId">, scenario: S): string {
  const id: unknown = environment.scenarioId === undefined ? defaultId(scenario) : environment.scenarioId(scenario);
  if (typeof id === "string" && id !== "") return id;
  const message = `A scenario of environment \`${environment.name}\` has no id: \`scenarioId\` must give a text that is not empty, got \`${String(id)}\``;
  throw new ArgumentError(message, { param: "scenarioId" });
}

/** Returns the id of a scenario without `scenarioId`; undefined for a value that has no JSON form. */
function defaultId(scenario: unknown): string | undefined {
  if (typeof scenario === "object" && scenario !== null && "id" in scenario && typeof scenario.id === "string") return scenario.id;
  const json: string | undefined = JSON.stringify(scenario);
  return json === undefined ? undefined : createHash("sha256").update(json).digest("hex").slice(0, 16);
}
