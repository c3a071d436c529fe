export function JobsPage(_: object) {
  return <p class="empty">Jobs</p>;
}
