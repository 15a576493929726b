// Replaces the content when it has changed on the server; forms that filter submit themselves; "/" goes to the search.
"use strict";

const main = document.getElementById("main");
const status = document.getElementById("live");
const seconds = Number(document.body.dataset.every || 0);
let tag = "";
let failures = 0;

function keyOf(element) {
  if (!element || !main.contains(element)) return "";
  return element.id ? `#${CSS.escape(element.id)}` : element.getAttribute("href") || "";
}

function restore(key) {
  if (!key) return;
  const found = key.startsWith("#")
    ? main.querySelector(key)
    : [...main.querySelectorAll("a[href]")].find((link) => link.getAttribute("href") === key);
  if (found) found.focus({ preventScroll: true });
}

function busy() {
  const selected = document.getSelection();
  const typing = document.activeElement && document.activeElement.matches("main select, main input");
  return document.hidden || typing || (selected && !selected.isCollapsed && main.contains(selected.anchorNode));
}

function replace(text) {
  const key = keyOf(document.activeElement);
  const open = new Set([...main.querySelectorAll("article[id] details[open]")].map((each) => each.closest("article").id));
  const known = new Set([...main.querySelectorAll("article[id] details")].map((each) => each.closest("article").id));
  const parsed = new DOMParser().parseFromString(text, "text/html");
  main.replaceChildren(...parsed.body.childNodes);
  for (const each of main.querySelectorAll("article[id] details")) {
    const id = each.closest("article").id;
    if (known.has(id)) each.open = open.has(id);
  }
  restore(key);
}

async function refresh() {
  if (busy()) return;
  try {
    const headers = { "X-Fragment": "main", "If-None-Match": tag };
    const answer = await fetch(location.href, { headers, cache: "no-store", redirect: "error" });
    if (answer.status === 401) location.reload();
    if (answer.status === 200) {
      tag = answer.headers.get("ETag") || "";
      const text = await answer.text();
      if (!busy()) replace(text);
    } else if (answer.status !== 304) {
      throw new Error(String(answer.status));
    }
    failures = 0;
    status.textContent = "";
  } catch {
    failures += 1;
    status.textContent = " The operator does not answer; this page may be stale.";
  }
}

async function live() {
  for (;;) {
    await new Promise((wake) => setTimeout(wake, 1000 * seconds * Math.min(2 ** failures, 12)));
    await refresh();
  }
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
});

document.addEventListener("keydown", (event) => {
  const field = document.getElementById("search");
  if (event.key !== "/" || !field || event.target.matches("input, select, textarea")) return;
  event.preventDefault();
  field.focus();
});

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && seconds) refresh();
});

if (seconds) live();
