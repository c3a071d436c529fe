/**
 * Schemas of the wire and disk formats. The types are inferred from the schemas; client, service and files share them. The comment of a
 * property stands in the schema and is shown for the type. A set of strings is a `z.literal`, because the type of a `z.enum` has a
 * property per value, which the generated reference would list without a comment.
 */
export * from "./artifact.ts";
export * from "./audit.ts";
export * from "./chat.ts";
export { chatCompletionRequest } from "./chat-fields.ts";
export type { ChatCompletionRequest } from "./chat-fields.ts";
export * from "./checkpoint.ts";
export * from "./common.ts";
export * from "./completions.ts";
export * from "./error.ts";
export * from "./file.ts";
export * from "./fine-tuning.ts";
export * from "./graders.ts";
export * from "./health.ts";
export * from "./job-config.ts";
export * from "./key.ts";
export * from "./messages.ts";
export * from "./model.ts";
export * from "./responses.ts";
export * from "./rollout-plan.ts";
export * from "./tokens.ts";
export * from "./session.ts";
export * from "./training-job.ts";
export * from "./trajectory.ts";
export * from "./upstream.ts";
