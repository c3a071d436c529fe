/** Scenarios of a training run by index: in the order of each environment, or drawn by a curriculum. */
import { trainScenarios, type Environment } from "../../../library/environment/index.ts";
import type { TrajectoryGroup } from "../../../base/trajectory/index.ts";
import { getOrInsert, itemAt } from "../../../base/util/values.ts";
import type { EnvironmentScenario } from "../rollouts.ts";
import { scenarioIndex } from "../../../run/run-directory.ts";
import { groupPassRate, passRateTable, samplingWeight, scenarioKey, WeightedDraws } from "./curriculum.ts";
import type { GroupPassRate } from "../../../run/events.ts";
import type { PassRatesOfStep } from "../../../run/resume-state.ts";
import { EnvironmentSchedule, type ScheduledGroup } from "./environment-schedule.ts";
import { weightedEnvironments, type BatchOptions, type CurriculumOptions } from "./options.ts";

/** Options of `trainRl` that determine its scenarios. */
export type ScenarioSamplerOptions = Pick<BatchOptions<unknown>, "environment" | "curriculum"> & { readonly seed?: number | undefined };

/** Scenarios that a curriculum samples from, with their keys. */
interface Pool {
  readonly scenarios: readonly unknown[];
  readonly keys: readonly string[];
}

/** Scenarios of a training run by index, over all its environments. */
export class ScenarioSampler {
  readonly #environments: readonly Environment<unknown>[];
  readonly #schedule: EnvironmentSchedule;
  readonly #curriculum: CurriculumOptions<unknown> | undefined;
  readonly #seed: number;
  /** Pools by position of the environment in the run's list. */
  readonly #pools = new Map<number, Pool>();

  constructor({ environment, curriculum, seed = 0 }: ScenarioSamplerOptions) {
    const list = weightedEnvironments(environment);
    this.#environments = list.map((each) => each.environment);
    this.#schedule = new EnvironmentSchedule(list.map(({ weight }) => weight));
    this.#curriculum = curriculum;
    this.#seed = seed;
  }

  /** Returns the scenarios of a step, of which none is taken yet; `earlier` has the recorded pass rates of the earlier steps. */
  step(step: number, earlier: Iterable<PassRatesOfStep>): StepScenarios {
    if (this.#curriculum === undefined) return new StepScenarios((from, count) => this.#inOrder(from, count));
    const draws = this.#environments.map((_, index) => this.#draws(index, [...earlier], step));
    return new StepScenarios((from, count) =>
      this.#scheduled(from, count).map(({ environment, index }) => {
        const position = (draws[environment] as WeightedDraws).draw(index);
        return { environment: this.#environmentAt(environment), scenario: this.#pool(environment).scenarios[position] };
      }),
    );
  }

  /**
   * Returns the pass rates of groups for the curriculum, in order of scenario index; none without a curriculum, and none of groups
   * in which every rollout failed.
   */
  passRates(groups: readonly TrajectoryGroup[], scenarios: ReadonlyMap<number, EnvironmentScenario>): GroupPassRate[] {
    const curriculum = this.#curriculum;
    if (curriculum === undefined) return [];
    return groups.flatMap((group) => {
      const { environment, scenario } = scenarios.get(scenarioIndex(group)) as EnvironmentScenario;
      const rate = groupPassRate(group, environment, curriculum.metric);
      const name = this.#nameOf(environment);
      const label = name === undefined ? {} : { environment: name };
      return rate === null ? [] : { ...label, key: scenarioKey(curriculum, environment, scenario), rate };
    });
  }

  /** Returns the scenarios `from … from + count − 1` without a curriculum. */
  #inOrder(from: number, count: number): EnvironmentScenario[] {
    const scheduled = this.#scheduled(from, count);
    // The groups of an environment have consecutive numbers. One call of `trainScenarios` per environment returns all its scenarios, and
    // shuffles only once.
    const scenariosByEnvironment = this.#environments.map(({ scenarios }, position) => {
      const groups = scheduled.filter(({ environment }) => environment === position);
      const firstIndex = groups[0]?.index ?? 0;
      return { firstIndex, scenarios: trainScenarios(scenarios.train, { seed: this.#seed, from: firstIndex, count: groups.length }) };
    });
    return scheduled.map(({ environment: position, index }) => {
      const { firstIndex, scenarios } = itemAt(scenariosByEnvironment, position);
      return { environment: this.#environmentAt(position), scenario: scenarios[index - firstIndex] };
    });
  }

  /** Returns the environments of the groups `from … from + count − 1`. */
  #scheduled(from: number, count: number): ScheduledGroup[] {
    return Array.from({ length: count }, (_, k) => this.#schedule.at(from + k));
  }

  /** Returns the draws of a step from the environment at `position` in the run's list. */
  #draws(position: number, earlier: readonly PassRatesOfStep[], step: number): WeightedDraws {
    const curriculum = this.#curriculum ?? {};
    const table = passRateTable(earlier, step, curriculum, this.#nameOf(this.#environmentAt(position)));
    const { target = 0.5 } = curriculum;
    const weights = this.#pool(position).keys.map((key) => samplingWeight(table.get(key) ?? target, curriculum));
    return new WeightedDraws(weights, { seed: this.#seed, environment: position });
  }

  /** Returns the pool of the environment at `position`; created at the first call. */
  #pool(position: number): Pool {
    return getOrInsert(this.#pools, position, () => {
      const environment = this.#environmentAt(position);
      const { train } = environment.scenarios;
      const scenarios = typeof train === "function" ? trainScenarios(train, { count: this.#curriculum?.pool ?? 0 }) : train;
      return { scenarios, keys: scenarios.map((scenario) => scenarioKey(this.#curriculum ?? {}, environment, scenario)) };
    });
  }

  /** Returns the environment at `position` in the run's list. */
  #environmentAt(position: number): Environment<unknown> {
    return this.#environments[position] as Environment<unknown>;
  }

  /** Returns the name of an environment in a run on several; undefined for a single environment. */
  #nameOf({ name }: Environment<unknown>): string | undefined {
    return this.#environments.length > 1 ? name : undefined;
  }
}

/** Scenarios of one step, taken in order of their index. */
export class StepScenarios {
  /** Scenarios taken so far, by index. */
  readonly taken = new Map<number, EnvironmentScenario>();
  readonly #scenariosOf: (from: number, count: number) => readonly EnvironmentScenario[];

  /** @param scenariosOf - Returns the scenarios with the indices `from … from + count − 1`. */
  constructor(scenariosOf: (from: number, count: number) => readonly EnvironmentScenario[]) {
    this.#scenariosOf = scenariosOf;
  }

  /** Takes the scenarios with the indices `from … from + count − 1`. */
  take(from: number, count: number): void {
    for (const [k, scenario] of this.#scenariosOf(from, count).entries()) this.taken.set(from + k, scenario);
  }
}
