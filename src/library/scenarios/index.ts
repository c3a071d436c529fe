/** Generation of scenarios from the tools of an agent, and files of scenarios: the entry point `whetstone/scenarios`. */
export type { Rejection, RejectionReason } from "./check-answer.ts";
export { readScenarios, writeScenarios } from "./file.ts";
export { generateScenarios, TooFewScenariosError } from "./generate.ts";
export type { GeneratedScenarios, GenerateScenariosOptions } from "./generate.ts";
export type { DifficultyRange } from "./prompt.ts";
export type { ToolScenario } from "./scenario.ts";
export type { ScenarioClient, ScenarioResource } from "./sources.ts";
export { splitScenarios } from "./split.ts";
export type { ScenarioSplit, SplitScenariosOptions } from "./split.ts";
