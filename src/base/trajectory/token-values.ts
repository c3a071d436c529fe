/**
 * Advantages and weights that a choice supplies for its sampled tokens: checks that preflight and the learner share, and functions that set
 * them.
 */
import { ArgumentError } from "../errors.ts";
import type { AssistantChoice, MessageOrChoice, TrajectoryGroup as WireTrajectoryGroup } from "../schema/index.ts";
import { isChoice } from "./messages.ts";
import { allChoices, Trajectory } from "./trajectory.ts";
import { isTrainableGroup } from "./trainable.ts";

/** Reason why the token advantages or weights of a choice or group are invalid. */
export type TokenValueProblem =
  | "token-value-mismatch"
  | "invalid-token-value"
  | "mixed-token-advantages"
  | "token-advantages-with-turn-rewards";

/** Message for each problem, with its fix; preflight and the learner share these messages. */
export const TOKEN_VALUE_PROBLEMS: Readonly<Record<TokenValueProblem, string>> = {
  "token-value-mismatch":
    "A choice has not as many `token_advantages` or `token_weights` as `token_ids`. Give one value per sampled token, or none.",
  "invalid-token-value":
    "A value of `token_advantages` or `token_weights` is not a finite number, or a weight is negative. Give finite advantages, and weights of at least 0.",
  "mixed-token-advantages":
    "Some choices of a group have `token_advantages` and others have none. Supplied advantages replace the advantages from rewards; give them to every choice of the group, or to none.",
  "token-advantages-with-turn-rewards":
    "A choice has `token_advantages` in a job with `turn_rewards`, which computes the advantages from the rewards of the choices. Use one of them.",
};

/** Returns the first problem of a choice's token advantages and weights; null if they are valid or absent. */
export function tokenValueProblem({ token_ids: ids, token_advantages: advantages, token_weights: weights }: AssistantChoice) {
  const suppliedLists = [advantages ?? null, weights ?? null].filter((values) => values !== null);
  if (suppliedLists.some((values) => values.length !== ids?.length)) return "token-value-mismatch";
  const isInvalid = suppliedLists.some((values) => values.some((value) => !Number.isFinite(value)));
  return isInvalid || (weights ?? []).some((weight) => weight < 0) ? "invalid-token-value" : null;
}

/** Whether only some of the choices have token advantages. */
export function hasMixedAdvantages(choices: readonly Pick<AssistantChoice, "token_advantages">[]): boolean {
  const supplied = choices.filter(hasAdvantages).length;
  return supplied > 0 && supplied < choices.length;
}

/**
 * Whether a group contributes to training: with token advantages if any of them is not 0, otherwise by its rewards, see `isTrainableGroup`.
 *
 * @param rewards - Shape `[G]`, all finite.
 * @param choices - Sampled turns of all trajectories of the group.
 */
export function isTrainable(rewards: readonly number[], choices: readonly Pick<AssistantChoice, "token_advantages">[]): boolean {
  if (!choices.some(hasAdvantages)) return isTrainableGroup(rewards);
  return choices.some(({ token_advantages: advantages }) => (advantages ?? []).some((advantage) => advantage !== 0));
}

/** Returns {@link isTrainable} of a group in wire form. */
export function isTrainableWire({ trajectories }: WireTrajectoryGroup): boolean {
  return isTrainable(
    trajectories.map(({ reward }) => reward),
    trajectories.flatMap(allChoices),
  );
}

/** Whether a choice supplies the advantages of its tokens. */
export function hasAdvantages({ token_advantages: advantages }: Pick<AssistantChoice, "token_advantages">): boolean {
  return Array.isArray(advantages);
}

/** Returns one value per sampled token of a choice. `index` counts the choices of all histories, the main conversation first. */
export type TokenValues = (choice: AssistantChoice, index: number) => readonly number[];

/**
 * Returns a copy of a trajectory with an advantage for each sampled token. A job uses them in place of the advantages from the group's
 * rewards, and normalizes them over the batch in the same way. Set them on every trajectory of a group.
 *
 * @param trajectory - Finished rollout. Not modified.
 * @param advantages - Returns the advantages of a choice, one per token id; any finite numbers.
 * @returns The copy; messages are shared.
 * @throws ArgumentError `E_ARGUMENT` for a choice without token ids, another number of advantages, or an advantage that is not finite.
 * @example
 * ```ts
 * const graded = withTokenAdvantages(finished, ({ token_ids }) => (token_ids ?? []).map((_, t) => (t === 0 ? 1 : -0.5)));
 * ```
 */
export function withTokenAdvantages(trajectory: Trajectory, advantages: TokenValues): Trajectory {
  return withValues(trajectory, "token_advantages", advantages);
}

/**
 * Returns a copy of a trajectory with a weight for each sampled token: a factor of the token's loss. A token with weight 0 is not trained,
 * like a token of the prompt.
 *
 * @param trajectory - Finished rollout. Not modified.
 * @param weights - Returns the weights of a choice, one per token id; finite and at least 0.
 * @returns The copy; messages are shared.
 * @throws ArgumentError `E_ARGUMENT` for a choice without token ids, another number of weights, or a weight that is negative or not finite.
 * @example
 * ```ts
 * const lastTurnOnly = withTokenWeights(finished, ({ token_ids }, index) =>
 *   (token_ids ?? []).map(() => (index === finished.allChoices.length - 1 ? 1 : 0)),
 * );
 * ```
 */
export function withTokenWeights(trajectory: Trajectory, weights: TokenValues): Trajectory {
  return withValues(trajectory, "token_weights", weights);
}

/** Returns a copy of a trajectory with a list of values in every choice. @throws ArgumentError `E_ARGUMENT` naming the choice. */
function withValues(trajectory: Trajectory, name: "token_advantages" | "token_weights", values: TokenValues): Trajectory {
  // Counts the choices of all histories: the main conversation is converted first.
  let nextIndex = 0;
  const withValuesIn = (items: readonly MessageOrChoice[]): MessageOrChoice[] =>
    items.map((item) => {
      if (!isChoice(item)) return item;
      const choiceIndex = nextIndex++;
      const changed = { ...item, [name]: [...values(item, choiceIndex)] };
      const problem = tokenValueProblem(changed);
      if (problem !== null) throw new ArgumentError(`Choice ${choiceIndex}: ${TOKEN_VALUE_PROBLEMS[problem]}`, { param: name });
      return changed;
    });
  const wire = trajectory.toJSON();
  return Trajectory.fromOwned({
    ...wire,
    messages_and_choices: withValuesIn(wire.messages_and_choices),
    additional_histories: wire.additional_histories.map((history) => ({
      ...history,
      messages_and_choices: withValuesIn(history.messages_and_choices),
    })),
  });
}
