/** HTML reports of training runs: the entry `whetstone/report`. */
export { writeReport } from "./write-report.ts";
export type { WriteReportOptions, WrittenReport } from "./write-report.ts";
