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

async function count() {
  for (const row of document.querySelectorAll("[data-counts]")) {
    const answer = await fetch(row.dataset.counts, { headers: { Accept: "application/json" } });
    const counts = answer.ok ? await answer.json() : {};
    for (const cell of row.querySelectorAll("[data-count]")) {
      const name = cell.dataset.count;
      const number = counts[name];
      if (name === "datasets") cell.textContent = number === undefined ? "?" : number.toLocaleString("en");
      else if (number) {
        cell.textContent = `${number.toLocaleString("en")} ${name}`;
        cell.hidden = false;
      }
    }
  }
}

document.addEventListener("DOMContentLoaded", () => {
  document.addEventListener("click", leave);
  tellTimes();
  count();
});
