// What a page can do beyond links and forms. Every page works without this file.
"use strict";

// A live region stops to follow while its button is pressed.
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-pause]");
  if (!button) return;
  const paused = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", String(paused));
});

document.addEventListener("htmx:sseBeforeMessage", (event) => {
  const button = document.querySelector("button[data-pause]");
  if (button && button.getAttribute("aria-pressed") === "true") event.preventDefault();
});

document.addEventListener("htmx:beforeRequest", (event) => {
  const button = document.querySelector("button[data-pause]");
  const is_live = event.detail.elt.hasAttribute("data-live");
  if (is_live && button && button.getAttribute("aria-pressed") === "true") {
    event.preventDefault();
  }
});

// A box in the head of a table ticks all boxes below it.
document.addEventListener("change", (event) => {
  const all = event.target.closest("input[data-all]");
  if (!all) return;
  for (const box of all.closest("table").querySelectorAll("tbody input[type=checkbox]")) {
    box.checked = all.checked;
  }
});

// What needs a script is hidden until there is one.
for (const hidden of document.querySelectorAll("[data-scripted]")) hidden.hidden = false;
