/* The table of runs: sorting, searching, selecting curves; a link to a config opens it. */

const runTable = byId("run-table");

function sortBy(heading) {
  const column = heading.cellIndex, rows = [...runTable.tBodies[0].rows];
  const ascending = heading.getAttribute("aria-sort") !== "ascending";
  const key = (row) => (row.cells[column].dataset.order === undefined ? null : Number(row.cells[column].dataset.order));
  const numeric = rows.some((row) => key(row) !== null);
  rows.sort((a, b) => {
    if (numeric) {
      const [left, right] = [key(a), key(b)];
      if (left === null || right === null) return (left === null) - (right === null);  // empty cells stay last
      return ascending ? left - right : right - left;
    }
    return (ascending ? 1 : -1) * a.cells[column].textContent.localeCompare(b.cells[column].textContent, "en", { numeric: true });
  });
  runTable.querySelectorAll("th[aria-sort]").forEach((other) => other.setAttribute("aria-sort", "none"));
  heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  runTable.tBodies[0].append(...rows);
}

const visibleRows = () => [...runTable.tBodies[0].rows].filter((row) => !row.hidden);

function showCurves(rows, shown) {
  rows.forEach((row) => { report.groups[Number(row.querySelector("input").dataset.group)].shown = shown; });
  drawCurves();
}

runTable.tHead.addEventListener("click", (event) => {
  const heading = event.target.closest("th[aria-sort]");
  if (heading) sortBy(heading);
});
runTable.addEventListener("change", (event) => {
  if (event.target.dataset.group !== undefined) showCurves([event.target.closest("tr")], event.target.checked);
});
byId("all-curves").addEventListener("click", () => showCurves(visibleRows(), true));
byId("no-curves").addEventListener("click", () => showCurves(visibleRows(), false));
byId("search").addEventListener("input", () => {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of runTable.tBodies[0].rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
});

function openTarget() {
  const target = location.hash.startsWith("#run-") && byId(location.hash.slice(1));
  if (target) { target.open = true; target.scrollIntoView(); }
}
window.addEventListener("hashchange", openTarget);
openTarget();
