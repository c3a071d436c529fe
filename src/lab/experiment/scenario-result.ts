/** Results of one scenario in an evaluation. */
export interface ScenarioResult {
  /** Index in the list of `eval` scenarios, over all environments of the run. */
  readonly index: number;
  /** Id of the scenario, `<environment>/<id>` in a run on several environments; null if all its rollouts failed, or if the run stored no ids. */
  readonly scenario: string | null;
  /** Reward of each rollout that did not fail. */
  readonly rewards: readonly number[];
  /** Metrics of each rollout that did not fail, aligned with `rewards`. */
  readonly metrics: readonly Readonly<Record<string, number | boolean>>[];
  /** Number of failed rollouts. */
  readonly exceptions: number;
}
