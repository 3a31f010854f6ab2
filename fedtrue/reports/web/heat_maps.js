/* Heat maps as HTML tables: they work with screen readers, with the keyboard and in print. */

const VIRIDIS = [
  "#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725",
];

function rampColour(part) {
  const position = Math.min(Math.max(part, 0), 1) * (VIRIDIS.length - 1);
  const low = Math.floor(position), high = Math.min(low + 1, VIRIDIS.length - 1);
  const channel = (i, k) => parseInt(VIRIDIS[i].slice(1 + 2 * k, 3 + 2 * k), 16);
  return [0, 1, 2].map((k) => Math.round(channel(low, k) + (position - low) * (channel(high, k) - channel(low, k))));
}

const luminance = ([r, g, b]) => (0.2126 * r ** 2.2 + 0.7152 * g ** 2.2 + 0.0722 * b ** 2.2) / 255 ** 2.2;
const diverged = (group) => group.status.includes("diverged");
const cellValue = (group, measure) => (diverged(group) ? null : group.values[measure.key]);
const reaches = (value, threshold, measure) =>
  value !== null && value !== undefined && (measure.higher ? value >= threshold : value <= threshold);

function allCellValues(measure) {
  return report.panels.flatMap((panel) => panel.cells.flat()).filter((i) => i !== null)
    .map((i) => cellValue(report.groups[i], measure)).filter((value) => value !== null && value !== undefined);
}

/* Losses span orders of magnitude where a learning rate is bad, so their colours and thresholds are logarithmic. */
const byRatio = (low, measure) => !measure.higher && low > 0;

/* The colour of a value: 0 is the worst, 1 the best. */
function shade(value, low, high, measure) {
  if (high === low) return 1;
  if (measure.higher) return (value - low) / (high - low);
  return byRatio(low, measure) ? 1 - Math.log(value / low) / Math.log(high / low) : 1 - (value - low) / (high - low);
}

function cellShort(value, measure) {
  return measure.percent ? (100 * value).toFixed(1) : Number(value.toPrecision(3)).toString();
}

function showCell(panel, row, column, group, measure) {
  const note = byId("cell");
  const name = document.createElement("p");
  const strong = document.createElement("strong");
  strong.textContent = group.name;
  const value = `${measure.title} ${group.texts[measure.key]}${measure.percent ? " %" : ""}`;
  name.append(strong, ` — client rate ${panel.client_rates[column]}, server rate ${panel.server_rates[row]}: `,
    diverged(group) ? group.status : value + (group.status === "finished" ? "" : `, ${group.status}`));
  const links = document.createElement("p");
  links.append("config: ");
  group.runs.forEach((run, i) => {
    const link = document.createElement("a");
    link.href = `#run-${run}`;
    link.textContent = group.runs.length > 1 ? `seed ${report.runs[run].seed}` : report.runs[run].name;
    links.append(i ? ", " : "", link);
  });
  note.replaceChildren(name, links);
}

function cellButton(panel, row, column, low, high, threshold, measure) {
  const group = report.groups[panel.cells[row][column]];
  const value = cellValue(group, measure);
  const button = document.createElement("button");
  button.type = "button";
  const where = `client rate ${panel.client_rates[column]}, server rate ${panel.server_rates[row]}: `;
  if (value === null || value === undefined) {
    button.className = "diverged";
    button.textContent = diverged(group) ? "×" : "–";
    button.setAttribute("aria-label", where + (diverged(group) ? group.status : "no value yet"));
  } else {
    const colour = rampColour(shade(value, low, high, measure));
    button.style.background = `rgb(${colour})`;
    button.style.color = luminance(colour) > 0.25 ? "#111" : "#fff";
    button.textContent = cellShort(value, measure);
    const good = reaches(value, threshold, measure);
    button.classList.toggle("reaches", good);
    button.setAttribute("aria-label", where + valueText(value, measure) + (good ? ", reaches the threshold" : ""));
  }
  for (const event of ["mouseenter", "focus", "click"])
    button.addEventListener(event, () => showCell(panel, row, column, group, measure));
  return button;
}

function panelTable(panel, low, high, threshold, measure) {
  const holder = document.createElement("div");
  holder.className = "panel";
  const values = panel.cells.flat().filter((i) => i !== null).map((i) => cellValue(report.groups[i], measure));
  const count = values.filter((value) => reaches(value, threshold, measure)).length;
  const heading = document.createElement("h3");
  heading.textContent = panel.title;
  const countLine = document.createElement("p");
  countLine.className = "count";
  const number = document.createElement("strong");
  number.textContent = count;
  countLine.append(number, ` of ${values.length} cells ${measure.higher ? "above" : "below"} ${valueText(threshold, measure)}`);
  const scroll = document.createElement("div");
  scroll.className = "scroll";
  const table = document.createElement("table");
  table.className = "heat";
  const caption = table.createCaption();
  caption.className = "visually-hidden";
  caption.textContent = `${panel.title}: ${measure.title} by server rate (rows) and client rate (columns)`;
  const cells = (row, texts, scope) => texts.forEach((text) => {
    const th = document.createElement("th");
    th.scope = scope;
    th.textContent = text;
    row.append(th);
  });
  const body = table.createTBody();
  for (let row = panel.server_rates.length - 1; row >= 0; row -= 1) {
    const line = body.insertRow();
    cells(line, [panel.server_rates[row]], "row");
    panel.client_rates.forEach((_, column) => {
      const cell = line.insertCell();
      if (panel.cells[row][column] === null) { cell.className = "untried"; cell.textContent = "·"; }
      else cell.append(cellButton(panel, row, column, low, high, threshold, measure));
    });
  }
  const foot = table.createTFoot().insertRow();
  cells(foot, ["server ↑ client →", ...panel.client_rates], "col");
  foot.firstChild.className = "corner";
  scroll.append(table);
  holder.append(heading, countLine, scroll);
  return holder;
}

function drawHeatMaps() {
  const measure = measureOf(byId("heat-measure").value);
  const values = allCellValues(measure);
  const low = Math.min(...values), high = Math.max(...values);
  const slider = byId("threshold");
  const part = Number(slider.value) / Number(slider.max);
  const dragged = byRatio(low, measure) ? low * (high / low) ** part : low + (high - low) * part;
  const threshold = slider.dataset.exact ? Number(slider.dataset.exact) : dragged;
  byId("threshold-text").textContent = valueText(threshold, measure);
  byId("heat-statistic").textContent = capitalised(measure.statistic);
  byId("bar-low").textContent = valueText(measure.higher ? low : high, measure);
  byId("bar-high").textContent = valueText(measure.higher ? high : low, measure);
  byId("panels").replaceChildren(...report.panels.map((panel) => panelTable(panel, low, high, threshold, measure)));
}

/* Something to read before the first cell is chosen. */
function showBest(measure) {
  const inPanels = report.panels.flatMap((panel) => panel.cells.flat());
  const best = measure.order.find((i) => inPanels.includes(i));
  for (const panel of report.panels)
    panel.cells.forEach((cells, row) => cells.forEach((i, column) => {
      if (i === best) showCell(panel, row, column, report.groups[i], measure);
    }));
}

/* The threshold that was asked for, not the slider's nearest step. */
function startThreshold() {
  const measure = measureOf(byId("heat-measure").value), values = allCellValues(measure);
  const low = Math.min(...values), high = Math.max(...values), slider = byId("threshold");
  const start = measure.threshold === null ? low : measure.threshold;
  const part = byRatio(low, measure) ? Math.log(start / low) / Math.log(high / low) : (start - low) / (high - low);
  slider.value = high > low ? part * Number(slider.max) : 0;
  slider.dataset.exact = start;
  drawHeatMaps();
  showBest(measure);
}

if (report.panels.length) {
  const withValues = report.measures.filter((measure) => allCellValues(measure).length);
  fillSelect(byId("heat-measure"), withValues.map((measure) => [measure.key, measure.title]), report.measure);
  byId("threshold").addEventListener("input", () => { byId("threshold").dataset.exact = ""; drawHeatMaps(); });
  byId("heat-measure").addEventListener("input", startThreshold);
  byId("heat-controls").addEventListener("submit", (event) => event.preventDefault());
  startThreshold();
}
