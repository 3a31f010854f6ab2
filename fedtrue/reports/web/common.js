"use strict";
/* Shared by the other scripts: the data, numbers as text, light and dark mode. */

const report = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const measureOf = (key) => report.measures.find((measure) => measure.key === key);

const unpacked = new Map();
/* The packed array `index` as numbers (NaN where nothing was measured). */
function numbers(index) {
  if (index === null || index === undefined) return null;
  if (!unpacked.has(index)) {
    const bytes = Uint8Array.from(atob(report.arrays[index]), (letter) => letter.charCodeAt(0));
    unpacked.set(index, Array.from(new Float32Array(bytes.buffer)));
  }
  return unpacked.get(index);
}

const capitalised = (text) => text[0].toUpperCase() + text.slice(1);

/* A recorded number as text: 57.68 % or 3.214. */
function valueText(value, measure) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return measure.percent ? (100 * value).toFixed(2) + " %" : Number(value.toPrecision(4)).toString();
}

function amountText(amount, axis) {
  if (axis === "bytes") {
    const power = Math.min(5, Math.max(0, Math.floor(Math.log10(Math.max(amount, 1)) / 3 + 1e-9)));
    return Number((amount / 1000 ** power).toPrecision(3)) + " " + ["B", "kB", "MB", "GB", "TB", "PB"][power];
  }
  return axis === "seconds" ? Number(amount.toPrecision(3)) + " s" : amount.toLocaleString("en") + " rounds";
}

/* Mean over the points of the last `window` rounds. It counts rounds, not points, so thinned curves have nearly the same mean. */
function trailingMean(rounds, values, window) {
  if (window <= 1 || !values) return values;
  let sum = 0, count = 0, first = 0;
  return values.map((value, i) => {
    if (!Number.isNaN(value)) { sum += value; count += 1; }
    for (; rounds[first] <= rounds[i] - window; first += 1)
      if (!Number.isNaN(values[first])) { sum -= values[first]; count -= 1; }
    return Number.isNaN(value) || count === 0 ? NaN : sum / count;
  });
}

function fillSelect(select, entries, chosen) {
  for (const [value, text] of entries) select.add(new Option(text, value, value === chosen, value === chosen));
}

/* Labels can contain any text; Plotly interprets some HTML tags, so they are escaped. */
const asPlotlyText = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const shortened = (text, length) => (text.length > length ? text.slice(0, length - 1) + "…" : text);

const themeListeners = [];
const systemDark = window.matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme || (systemDark.matches ? "dark" : "light")) === "dark";
const palette = () => report.colours[isDark() ? "dark" : "light"];
const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const themeChanged = () => themeListeners.forEach((listener) => listener());

try {  // a page opened from a file may have no local storage
  const savedTheme = localStorage.getItem("fedtrue-theme");
  if (savedTheme) document.documentElement.dataset.theme = savedTheme;
} catch { /* use the system setting */ }
byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  try { localStorage.setItem("fedtrue-theme", document.documentElement.dataset.theme); } catch { /* not saved */ }
  themeChanged();
});
systemDark.addEventListener("change", themeChanged);
