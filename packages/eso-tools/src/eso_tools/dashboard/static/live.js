// Keeps the page current. A page that is not current says so above its content and in its title, and is grey.
// Forms that filter submit themselves; "/" goes to the search.
"use strict";

const main = document.getElementById("main");
const notice = document.getElementById("notice");
const seconds = Number(document.body.dataset.every || 0);
const limit = 10_000; // milliseconds: a dashboard whose machine is gone closes no connection
let tag = "";
let failures = 0;
let title = document.title;
let current = new Date();

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

function inUse() {
  const selected = document.getSelection();
  const typing = document.activeElement && document.activeElement.matches("main select, main input");
  return Boolean(typing || (selected && !selected.isCollapsed && main.contains(selected.anchorNode)));
}

function replace(parsed) {
  const key = keyOf(document.activeElement);
  const open = new Set([...main.querySelectorAll("article[id] details[open]")].map((each) => each.closest("article").id));
  const known = new Set([...main.querySelectorAll("article[id] details")].map((each) => each.closest("article").id));
  main.replaceChildren(...parsed.body.childNodes);
  for (const each of main.querySelectorAll("article[id] details")) {
    const id = each.closest("article").id;
    if (known.has(id)) each.open = open.has(id);
  }
  if (parsed.title) title = parsed.title;
  restore(key);
}

function markCurrent() {
  current = new Date();
  notice.hidden = true;
  notice.textContent = "";
  document.body.classList.remove("stale");
  document.title = title;
}

// The state that the dashboard knows is of this time: it is older than the page while the API server does not answer.
function showTime(text) {
  const shown = document.querySelector("#as-of time");
  if (!shown || !text) return;
  shown.dateTime = text;
  shown.textContent = new Date(text).toLocaleTimeString([], { hour12: false });
}

function markStale(why) {
  const text = `${why} This page shows the state of ${current.toLocaleString()}.`;
  if (notice.textContent !== text) notice.textContent = text;
  notice.hidden = false;
  document.body.classList.add("stale");
  document.title = `Not current · ${title}`;
}

async function refresh() {
  try {
    const headers = { "X-Fragment": "main", "If-None-Match": tag };
    const signal = AbortSignal.timeout(limit);
    const response = await fetch(location.href, { headers, signal, cache: "no-store", redirect: "error" });
    if (response.status === 401) location.reload();
    if ([200, 403, 404].includes(response.status)) {
      const parsed = new DOMParser().parseFromString(await response.text(), "text/html");
      if (inUse()) {
        markStale("Updates wait while text is selected or a field is open.");
        return;
      }
      tag = response.headers.get("ETag") || "";
      replace(parsed);
    } else if (response.status !== 304) {
      throw new Error(String(response.status));
    }
    failures = 0;
    markCurrent();
    showTime(response.headers.get("X-As-Of"));
  } catch {
    failures += 1;
    markStale("The dashboard does not answer.");
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

showTime(document.querySelector("#as-of time")?.dateTime);
if (seconds) live();
