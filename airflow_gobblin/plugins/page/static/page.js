// What HTML can't do: look as Airflow does at the moment, follow links out of Airflow's frame, and count what takes a while.
"use strict";

const framed = window.parent !== window;

// The theme that somebody chose in Airflow, which keeps it here; without a choice, the browser's.
function follow() {
  const chosen = localStorage.getItem("theme");
  const dark = chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

// The colours and fonts of Airflow's own pages around this one, which an administrator may have changed.
function borrow() {
  if (!framed) return;
  const from = getComputedStyle(parent.document.documentElement);
  const root = document.documentElement.style;
  for (const name of [
    "bg", "bg-subtle", "bg-muted", "bg-emphasized", "fg", "fg-muted", "fg-subtle", "border", "border-emphasized",
    "brand-solid", "brand-contrast", "brand-fg", "red-solid", "red-fg", "red-subtle", "green-solid", "green-fg",
    "green-subtle", "orange-solid", "orange-fg", "orange-subtle", "blue-solid", "blue-fg", "blue-subtle", "gray-subtle", "gray-fg",
  ]) {
    const value = from.getPropertyValue(`--chakra-colors-${name}`);
    if (value) root.setProperty(`--${name}`, value);
  }
  root.setProperty("--font", getComputedStyle(parent.document.body).fontFamily);
}

function look() {
  follow();
  try {
    borrow();
  } catch {
    // Airflow's pages aren't what they were: our own colours are like them.
  }
}

look();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", look);
window.addEventListener("storage", (event) => {
  // Airflow's own pages change a moment after it has kept the choice.
  if (event.key === "theme") setTimeout(look, 50);
});

// The frame's sandbox keeps its links inside; a link of the page around may go anywhere in Airflow.
function leave(event) {
  const link = event.target.closest("a[data-airflow]");
  if (!link || !framed || event.metaKey || event.ctrlKey || event.button) return;
  event.preventDefault();
  const outer = parent.document.createElement("a");
  outer.href = link.href;
  outer.click();
}

function tellTimes() {
  const timeZone = localStorage.getItem("timezone")?.replaceAll('"', "") || undefined;
  let format;
  try {
    format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long", timeZone });
  } catch {
    format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  }
  for (const time of document.querySelectorAll("time")) time.title = format.format(new Date(time.dateTime));
}

// On a narrow screen a row of a table is a card, in which each cell has its column's name.
function label() {
  for (const table of document.querySelectorAll("table")) {
    const names = Array.from(table.tHead?.rows[0].cells ?? [], (cell) => cell.textContent);
    for (const row of table.tBodies[0]?.rows ?? []) {
      Array.from(row.cells).forEach((cell, number) => (cell.dataset.label = names[number] ?? ""));
    }
  }
}

// What was sent is not sent again by a second click.
function once(event) {
  const form = event.target;
  if (form.method !== "post") return;
  if (form.ariaBusy === "true") event.preventDefault();
  form.ariaBusy = "true";
}

async function count(row) {
  let counts;
  try {
    const answer = await fetch(row.dataset.counts, { headers: { Accept: "application/json" } });
    counts = await answer.json();
  } catch (error) {
    counts = { error: `Airflow's API server didn't answer: ${error.message}` };
  }
  for (const cell of row.querySelectorAll("[data-count]")) {
    const name = cell.dataset.count;
    const value = counts[name];
    if (name === "datasets") cell.textContent = value === undefined ? "?" : value.toLocaleString("en");
    else if (value) {
      cell.textContent = name === "error" ? value : `${value.toLocaleString("en")} ${name}`;
      cell.hidden = false;
    }
  }
}

// A few at a time: one that takes long doesn't hold up all others.
function countAll() {
  const rows = Array.from(document.querySelectorAll("[data-counts]"));
  const next = async () => {
    for (let row = rows.shift(); row; row = rows.shift()) await count(row);
  };
  for (let number = 0; number < 4; number += 1) next();
}

document.addEventListener("DOMContentLoaded", () => {
  document.addEventListener("click", leave);
  document.addEventListener("submit", once);
  tellTimes();
  label();
  countAll();
});
// A page that the browser had kept: its form may be sent again, and is refused if it was done.
window.addEventListener("pageshow", () => {
  for (const form of document.forms) form.ariaBusy = null;
});
