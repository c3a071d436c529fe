export function ModelsPage(_: object) {
  return <p class="empty">Models</p>;
}
