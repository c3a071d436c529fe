/** Live dashboard of training runs, served by the service below `/ui`. */
export { createDashboard } from "./dashboard.ts";
export type { Dashboard, DashboardOptions } from "./dashboard.ts";
