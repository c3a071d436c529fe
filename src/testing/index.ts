/**
 * Test doubles: a policy and an engine that follow a script, the complete service on such an engine, and a float64 engine as an oracle for
 * other engines. None of them needs a test framework.
 */
export { createReferenceEngine } from "./reference/engine.ts";
export type { ReferenceEngine } from "./reference/engine.ts";
export { createScriptedEngine } from "./scripted-engine.ts";
export type { SampleScriptInput, ScriptedCall, ScriptedEngine, ScriptedEngineOptions } from "./scripted-engine.ts";
export { createScriptedPolicy } from "./scripted-policy.ts";
export type { ScriptedPolicy, ScriptedPolicyOptions, ScriptedTurn } from "./scripted-policy.ts";
export { startTestService } from "./test-service.ts";
export type { TestAnswerInput, TestLogLine, TestService, TestServiceOptions } from "./test-service.ts";
