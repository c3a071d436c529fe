/** Generation of scenarios from the tools of an agent, and files of scenarios: the entry point `whetstone/scenarios`. */
export type { Rejection, RejectionReason } from "./check-answer.ts";
export { readScenarios, writeScenarios } from "./file.ts";
export { generateScenarios, TooFewScenariosError, type GeneratedScenarios, type GenerateScenariosOptions } from "./generate.ts";
export type { DifficultyRange } from "./prompt.ts";
export type { ToolScenario } from "./scenario.ts";
export type { ScenarioClient, ScenarioResource } from "./sources.ts";
export { splitScenarios, type ScenarioSplit, type SplitScenariosOptions } from "./split.ts";
