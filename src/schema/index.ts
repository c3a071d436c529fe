/** Schemas of the wire and disk formats. The types are inferred from the schemas; client, service and files share them. */
export * from "./artifact.ts";
export * from "./chat.ts";
export * from "./checkpoint.ts";
export * from "./common.ts";
export * from "./error.ts";
export * from "./health.ts";
export * from "./model.ts";
export * from "./training-job.ts";
export * from "./trajectory.ts";
