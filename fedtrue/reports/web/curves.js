/* Curves: one trace per group (or per seed), a band from the lowest to the highest seed. */

const WINDOWS = [1, 2, 5, 10, 20, 50, 100, 200, 500];
// listed explicitly: the default buttons of Plotly include one that uploads the data
const BUTTONS = [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]];
const TOUCH = window.matchMedia("(pointer: coarse)").matches;  // on touch screens a drag scrolls the page and does not zoom
const LEGEND_LINE_HEIGHT = 23;  // pixels
const MAX_UNSMOOTHED_LINES = 8;  // with more curves, the unsmoothed lines behind them are not drawn
const slots = new Map();  // group → its index in the palette, constant while the group is shown

function slotOf(group) {
  if (!slots.has(group)) {
    const taken = new Set(slots.values());
    let slot = 0;
    while (taken.has(slot)) slot += 1;
    slots.set(group, slot);
  }
  return slots.get(group);
}

const colourOf = (group) => palette()[slotOf(group) % palette().length];
const dashOf = (group) => {
  const slot = slotOf(group);
  return report.dashes[(slot + Math.floor(slot / palette().length)) % report.dashes.length];
};

function shownGroups() {
  const shown = report.groups.map((group, i) => i).filter((i) => report.groups[i].shown);
  for (const group of [...slots.keys()]) if (!report.groups[group].shown) slots.delete(group);
  shown.forEach(slotOf);
  return shown;
}

function curveOptions() {
  return {
    measure: measureOf(byId("measure").value),
    axis: byId("axis").value,
    window: WINDOWS[Number(byId("window").value)],
    logX: byId("log-x").checked,
    logY: byId("log-y").checked,
    everySeed: byId("every-seed").checked,
  };
}

function lineTrace(curve, group, name, options, extra) {
  const { measure, axis, window } = options;
  const scale = measure.percent ? 100 : 1;
  const x = numbers(curve[axis]);
  const rounds = numbers(curve.rounds);
  const values = trailingMean(rounds, numbers(curve.value), window).map((value) => scale * value);
  return {
    type: "scatter", mode: x.length > 1 ? "lines" : "markers", x, y: values,
    name: asPlotlyText(shortened(name, 48)),
    uid: `g${group}`,  // used by Plotly as a CSS class: letters and digits only
    legendgroup: String(group),
    line: { color: colourOf(group), dash: dashOf(group), width: 2.2 },
    marker: { color: colourOf(group), size: 8 },
    text: values.map((value, i) => `${valueText(value / scale, measure)} after ${amountText(rounds[i], "rounds")}`
      + (axis === "rounds" ? "" : `, ${amountText(x[i], axis)}`)),
    meta: asPlotlyText(shortened(name, 60)),  // not in the template, where %{x} in a label would be replaced
    hovertemplate: "<b>%{meta}</b><br>%{text}<extra></extra>",
    ...extra,
  };
}

function bandTrace(curve, group, options) {
  const { measure, axis, window } = options;
  const scale = measure.percent ? 100 : 1;
  const rounds = numbers(curve.rounds), x = numbers(curve[axis]);
  const low = trailingMean(rounds, numbers(curve.low), window), high = trailingMean(rounds, numbers(curve.high), window);
  const forth = x.map((_, i) => i).filter((i) => Number.isFinite(low[i]) && Number.isFinite(high[i]));
  const back = [...forth].reverse();
  return {
    type: "scatter", mode: "lines", x: [...forth, ...back].map((i) => x[i]),
    y: [...forth.map((i) => scale * high[i]), ...back.map((i) => scale * low[i])],
    fill: "toself", fillcolor: colourOf(group) + "2e", line: { width: 0 }, hoverinfo: "skip", showlegend: false,
    legendgroup: String(group), uid: `g${group}band`,
  };
}

function traces(groups, options) {
  const lines = [], behind = [];
  for (const i of groups) {
    const group = report.groups[i];
    const seeds = options.everySeed ? group.runs.filter((run) => report.runs[run].curves[options.measure.key]) : [];
    if (seeds.length) {
      seeds.forEach((run, index) => lines.push(lineTrace(report.runs[run].curves[options.measure.key], i,
        `${group.name}, seed ${report.runs[run].seed}`, options,
        { name: asPlotlyText(shortened(group.name, 48)), uid: `g${i}run${run}`, showlegend: index === 0, opacity: 0.85 })));
      continue;
    }
    const curve = group.curves[options.measure.key];
    if (!curve) continue;
    if (curve.low !== null) behind.push(bandTrace(curve, i, options));
    else if (options.window > 1 && groups.length <= MAX_UNSMOOTHED_LINES)
      behind.push(lineTrace(curve, i, group.name, { ...options, window: 1 },
        { uid: `g${i}raw`, showlegend: false, hoverinfo: "skip", hovertemplate: undefined, opacity: 0.25,
          line: { color: colourOf(i), width: 1 } }));
    lines.push(lineTrace(curve, i, group.name, options));
  }
  return [...behind, ...lines];
}

/* How many powers of ten the x axis spans; with more than three, ticks at 2 and 5 would overlap. */
function decades(groups, { measure, axis }) {
  const ends = groups.map((i) => report.groups[i].curves[measure.key]).filter(Boolean).map((curve) => numbers(curve[axis]));
  const first = Math.min(...ends.map((x) => x[0])), last = Math.max(...ends.map((x) => x.at(-1)));
  return Math.log10(last / Math.max(first, 1e-9));
}

function layout(groups, options) {
  const { measure, axis, logX, logY } = options;
  const narrow = byId("curve-plot").clientWidth < 720;
  const longest = Math.max(0, ...groups.map((i) => report.groups[i].name.length));
  const below = narrow || longest > 36;
  const ink = cssColour("--ink"), grid = cssColour("--line");
  const line = {
    gridcolor: grid, linecolor: grid, zerolinecolor: grid, automargin: true, tickfont: { color: cssColour("--soft") },
  };
  return {
    font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 12 : 13, color: ink },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    height: (narrow ? 340 : 460) + (below ? LEGEND_LINE_HEIGHT * Math.min(groups.length, 24) : 0),
    margin: { l: 56, r: 12, t: 36, b: 48 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: cssColour("--soft"), activecolor: cssColour("--accent") },
    hovermode: "closest", hoverdistance: 40, dragmode: TOUCH ? false : "zoom",
    hoverlabel: { bgcolor: cssColour("--raised"), bordercolor: grid, font: { color: ink }, align: "left" },
    legend: below
      ? { orientation: "v", tracegroupgap: 0, x: 0, xanchor: "left", y: narrow ? -0.3 : -0.2, yanchor: "top",
          maxheight: LEGEND_LINE_HEIGHT * groups.length + 20 }
      : { tracegroupgap: 4, x: 1.01, y: 1, xanchor: "left", yanchor: "top" },
    xaxis: {
      ...line, title: { text: report.axes[axis], standoff: 8 }, type: logX ? "log" : "linear", uirevision: `${axis} ${logX}`,
      ...(axis === "bytes" ? { tickformat: "~s" } : {}),
      ...(logX ? { dtick: decades(groups, options) > 3 ? 1 : "D2" } : {}),
    },
    yaxis: {
      ...line, title: { text: measure.title + (measure.percent ? " (%)" : ""), standoff: 8 }, type: logY ? "log" : "linear",
      uirevision: `${measure.key} ${logY}`,
    },
    showlegend: true, uirevision: "constant",
  };
}

function caption(groups, options) {
  const { measure, axis, window } = options;
  const drawn = groups.filter((i) => report.groups[i].curves[measure.key]);
  const ranked = measure.order.filter((i) => drawn.includes(i) && report.groups[i].values[measure.key] !== null);
  let text = `${capitalised(measure.title)} against ${report.axes[axis]}, ${drawn.length} of ${report.groups.length} curves`;
  if (window > 1) text += `, each point the mean of the last ${window} rounds`;
  if (groups.some((i) => report.groups[i].runs.length > 1))
    text += options.everySeed ? ", every seed" : "; lines are means over seeds, bands extend from the lowest to the highest seed";
  if (ranked.length > 1) {
    const nameAndValue = (i) => `${report.groups[i].name} (${valueText(report.groups[i].values[measure.key], measure)})`;
    text += `. The best of these is ${nameAndValue(ranked[0])}, the worst is ${nameAndValue(ranked.at(-1))}, by ${measure.statistic}`;
  }
  return text + ".";
}

function curveTable(groups, options) {
  const { measure, axis } = options;
  const drawn = groups.filter((i) => report.groups[i].curves[measure.key]);
  const last = Math.max(0, ...drawn.map((i) => numbers(report.groups[i].curves[measure.key][axis]).at(-1)));
  const marks = Array.from({ length: 8 }, (_, k) => ((k + 1) * last) / 8)
    .map((mark) => (axis === "rounds" ? Math.round(mark) : mark));
  const table = byId("curve-table");
  table.replaceChildren();
  const head = table.createTHead().insertRow();
  const cell = (row, text, tag, scope) => {
    const element = document.createElement(tag);
    element.textContent = text;
    if (scope) element.scope = scope;
    if (tag === "td" || text !== "run" && scope === "col") element.className = "number";
    row.append(element);
  };
  cell(head, "run", "th", "col");
  [...new Set(marks)].forEach((mark) => cell(head, amountText(mark, axis), "th", "col"));
  const body = table.createTBody();
  for (const i of drawn) {
    const row = body.insertRow(), curve = report.groups[i].curves[measure.key];
    const x = numbers(curve[axis]), values = numbers(curve.value);
    cell(row, report.groups[i].name, "th", "row");
    for (const mark of new Set(marks)) {
      const next = x.findIndex((position) => position > mark * (1 + 1e-6));
      const last = (next < 0 ? x.length : next) - 1;
      const hasEnded = next < 0 && x.at(-1) < mark * 0.99;
      cell(row, last < 0 || hasEnded ? "–" : valueText(values[last], measure), "td");
    }
  }
}

function drawCurves() {
  const options = curveOptions(), groups = shownGroups();
  byId("window-text").textContent = options.window;
  byId("curve-caption").textContent = caption(groups, options);
  curveTable(groups, options);
  document.querySelectorAll("#run-table input[data-group]").forEach((box) => {
    const group = Number(box.dataset.group), shown = report.groups[group].shown;
    box.checked = shown;
    box.nextElementSibling.style.background = shown ? colourOf(group) : "transparent";
  });
  return Plotly.react("curve-plot", traces(groups, options), layout(groups, options), {
    responsive: true, displaylogo: false, modeBarButtons: BUTTONS, toImageButtonOptions: { scale: 3, filename: "curves" },
  });
}

fillSelect(byId("measure"), report.measures.map((measure) => [measure.key, measure.title]), report.measure);
fillSelect(byId("axis"), Object.entries(report.axes), "rounds");
byId("window").max = WINDOWS.length - 1;
byId("curve-controls").addEventListener("input", drawCurves);
byId("curve-controls").addEventListener("submit", (event) => event.preventDefault());
if (report.thinned) byId("thinned").textContent = `Long curves are drawn with ${report.thinned} evenly spaced points each, `
  + "including the first and the last; the numbers in the tables use all rounds.";
let drawnNarrow = null;
window.addEventListener("resize", () => {
  const narrow = byId("curve-plot").clientWidth < 720;
  if (narrow !== drawnNarrow) { drawnNarrow = narrow; drawCurves(); }
});
themeListeners.push(drawCurves);
drawCurves();
