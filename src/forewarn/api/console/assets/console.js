// Liveness and comfort for the console. Every page works without it; nothing is loaded from elsewhere.
"use strict";
(() => {
  const body = document.body;
  const view = body.dataset.stream || "";
  let speed = body.dataset.speed === "" ? 1 : Number(body.dataset.speed);
  const sign = document.getElementById("live");
  const POLL_EVERY_MS = 5000, LOST_AFTER_MS = 40000;
  let after = body.dataset.after || "";
  let source = null, polling = 0, heardAt = Date.now(), ended = false;

  // The time of the service: what it said last, and what has passed since, by its own speed.
  let saidMs = Number(body.dataset.now), saidAt = performance.now();
  const now = () => saidMs + (performance.now() - saidAt) * speed;
  const set = (said) => { saidMs = said.now; saidAt = performance.now(); speed = said.speed; };

  // Times: in the reader's zone, with UTC beside it.
  const zone = new Intl.DateTimeFormat().resolvedOptions().timeZone;
  const format = (options, timeZone) => new Intl.DateTimeFormat("en-GB", { hourCycle: "h23", timeZone, ...options });
  const HMS = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
  const HM = { hour: "2-digit", minute: "2-digit" };
  const DAY = { year: "numeric", month: "2-digit", day: "2-digit" };
  const local = { clock: format(HMS), far: format({ weekday: "short", day: "2-digit", month: "short", ...HM }), hm: format(HM), date: format({ ...HMS, ...DAY, timeZoneName: "short" }), day: format({ weekday: "short", day: "2-digit" }) };
  const utc = { clock: format(HM, "UTC"), now: format(HM, "UTC"), date: format(HM, "UTC"), key: format({ ...DAY, ...HM }, "UTC"), own: format({ ...DAY, ...HM }) };
  const sameAsUtc = (at) => utc.key.format(at) === utc.own.format(at);
  const dated = (at) => {
    const p = Object.fromEntries(local.date.formatToParts(at).map((x) => [x.type, x.value]));
    return [`${p.year}-${p.month}-${p.day} ${p.hour}:${p.minute}:${p.second}`, p.timeZoneName];
  };
  const isoDay = (at, zoneOf) => new Intl.DateTimeFormat("en-CA", { timeZone: zoneOf, ...DAY }).format(at);

  function time(tag) {
    const at = new Date(Number(tag.dataset.at)), how = tag.dataset.how;
    if (tag.dataset.done || sameAsUtc(at)) return;
    tag.dataset.done = "1";
    if (how === "tick") { tag.textContent = local.hm.format(at); return; }
    if (how === "day") { tag.textContent = local.day.format(at); return; }
    const beside = document.createElement("span");
    beside.className = "utc";
    const otherDay = isoDay(at) !== isoDay(at, "UTC") ? `${isoDay(at, "UTC").slice(5)} ` : "";
    beside.textContent = `${otherDay}${utc[how].format(at)} UTC`;
    const [text, short] = dated(at);
    const other = how === "clock" && isoDay(at) !== isoDay(now());
    tag.replaceChildren(how === "date" ? text : local[other ? "far" : "clock"].format(at).replaceAll(",", ""), how === "now" ? ` ${short}` : "", beside);
    tag.title = `${text} ${short} (${zone})`;
  }

  function span(seconds) {
    const parts = [];
    for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]) {
      const count = Math.floor(seconds / size);
      seconds -= count * size;
      if (count || parts.length || unit === "s") parts.push([count, unit]);
    }
    return parts.slice(0, 2).filter(([n], i) => n || i === 0).map(([n, u]) => `${n}${u}`).join(" ");
  }

  function away(tag) {
    const left = Math.floor((Number(tag.dataset.away) - now()) / 1000);
    const text = left === 0 ? "now" : left > 0 ? `in ${span(left)}` : `${span(-left)} ago`;
    if (tag.textContent !== text) tag.textContent = text;
  }

  function dress(part) {
    part.querySelectorAll("[data-at]").forEach(time);
    part.querySelectorAll("[data-zone]").forEach((one) => { one.textContent = zone; });
    part.querySelectorAll("[data-away]").forEach(away);
  }

  let today = isoDay(now());
  function tick() {
    if (isoDay(now()) !== today) { // what was today's is another day's by now
      today = isoDay(now());
      document.querySelectorAll("[data-done]").forEach((tag) => { delete tag.dataset.done; });
      dress(document);
    }
    document.querySelectorAll("[data-away]").forEach(away);
    const clock = document.getElementById("clock");
    if (clock) {
      const tag = clock.firstElementChild;
      tag.dataset.at = String(Math.floor(now()));
      delete tag.dataset.done;
      tag.textContent = new Date(now()).toISOString().slice(11, 19) + " UTC";
      time(tag);
    }
    if (source && Date.now() - heardAt > LOST_AFTER_MS) { close(); open(); }
  }

  // What has changed: blocks by their ids, cells by their places. Focus and open parts are kept.
  function patch(message) {
    set(message);
    for (const [name, html] of Object.entries(message.blocks)) {
      const old = document.getElementById(`b-${name}`);
      if (!old) continue;
      const made = document.createElement("template");
      made.innerHTML = html;
      const fresh = made.content.firstElementChild;
      const focused = old.contains(document.activeElement) ? document.activeElement : null;
      const mark = focused && (focused.id || focused.getAttribute("href") || focused.getAttribute("data-mark"));
      const typing = focused && /^(INPUT|SELECT|TEXTAREA)$/.test(focused.tagName);
      if (typing) continue; // never under the hands of who types; the next change brings it
      old.querySelectorAll("details[id]").forEach((one) => {
        const same = fresh.querySelector(`#${CSS.escape(one.id)}`);
        if (same) same.open = one.open;
      });
      dress(fresh);
      old.replaceWith(fresh);
      fresh.classList.add("fresh");
      if (mark) {
        const again = [...fresh.querySelectorAll("a, button, summary, [tabindex]")].find((one) => one.id === mark || one.getAttribute("href") === mark || one.getAttribute("data-mark") === mark);
        if (again) again.focus({ preventScroll: true });
        else { fresh.tabIndex = -1; fresh.focus({ preventScroll: true }); }
      }
      if (name === "broken") {
        const said = document.getElementById("said"), text = fresh.dataset.said || "";
        if (said && said.textContent !== text) said.textContent = text;
      }
    }
    if (message.cells.length) {
      const cells = document.querySelectorAll("#b-grid .hosts > *");
      for (const [place, code] of message.cells) {
        const cell = cells[place];
        if (cell) { cell.className = code === "o" ? "" : code; if (cell.title) cell.title = cell.title.split(":")[0]; }
      }
    }
  }

  function show(state, words) {
    if (sign) { sign.dataset.is = state; sign.textContent = words; }
  }

  const address = (more) => `/console/stream?on=${encodeURIComponent(view)}&after=${encodeURIComponent(after)}${more}`;

  function open() {
    if (!view || source || polling || ended || document.hidden) return;
    source = new EventSource(address(""));
    heardAt = Date.now();
    source.onopen = () => { heardAt = Date.now(); show("live", "live"); };
    source.onerror = () => {
      show("lost", "reconnecting");
      if (source && source.readyState === EventSource.CLOSED) { close(); again(); }
    };
    source.addEventListener("patch", (event) => { heardAt = Date.now(); after = event.lastEventId || after; patch(JSON.parse(event.data)); });
    source.addEventListener("beat", (event) => { heardAt = Date.now(); set(JSON.parse(event.data)); });
    source.addEventListener("poll", (event) => { close(); poll(JSON.parse(event.data).every * 1000); });
    source.addEventListener("end", () => { close(); again(); });
  }

  function close() {
    if (source) source.close();
    source = null;
  }

  // The server has closed the stream: is there still a session?
  function again() {
    fetch(address("&once"), { credentials: "same-origin" }).then((answer) => {
      if (answer.status === 401 || answer.status === 403) {
        ended = true;
        show("lost", "session ended: log in again");
      } else setTimeout(open, 3000);
    }, () => setTimeout(again, 3000));
  }

  // Too many tabs: this one asks now and then.
  function poll(every) {
    show("asks", `every ${Math.round(every / 1000)} s`);
    const ask = async () => {
      polling = 0;
      if (document.hidden) return;
      try {
        const answer = await fetch(address("&once"), { credentials: "same-origin" });
        if (answer.status === 401 || answer.status === 403) { ended = true; show("lost", "session ended: log in again"); return; }
        for (const part of (await answer.text()).split("\n\n")) {
          const field = (name) => (part.split("\n").find((one) => one.startsWith(`${name}: `)) || "").slice(name.length + 2);
          if (field("id")) after = field("id");
          if (field("event") === "patch") patch(JSON.parse(field("data")));
        }
      } catch { show("lost", "reconnecting"); }
      polling = setTimeout(ask, every);
    };
    polling = setTimeout(ask, Math.min(every, POLL_EVERY_MS));
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { close(); if (polling) { clearTimeout(polling); polling = 0; } show("", "paused"); }
    else open();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted) open(); });

  // Names of hosts on their cells, by one look-up.
  let names = null;
  const placeOf = (cell) => [...document.querySelectorAll("#b-grid .hosts > *")].indexOf(cell);
  async function hostOf(cell) {
    names = names || fetch("/console/fleet/names", { credentials: "same-origin" }).then((answer) => answer.json());
    return (await names).names[placeOf(cell)];
  }
  document.addEventListener("pointerover", async (event) => {
    const cell = event.target.closest("#b-grid .hosts > i");
    document.querySelectorAll(".whose").forEach((one) => one.remove());
    if (!cell) return;
    const name = await hostOf(cell);
    if (!name || !cell.matches(":hover")) return;
    const tip = document.createElement("span");
    tip.className = "whose";
    tip.textContent = name;
    body.append(tip);
    const box = cell.getBoundingClientRect();
    tip.style.left = `${Math.min(box.left, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${box.bottom + 6}px`;
  });
  document.addEventListener("click", async (event) => {
    const cell = event.target.closest("#b-grid .hosts > i");
    if (cell) { const name = await hostOf(cell); if (name) location.href = `/console/hosts/${encodeURIComponent(name)}`; }
  });

  // A form is sent once; the key in it would make a second one harmless all the same.
  document.addEventListener("submit", (event) => {
    if (event.target.method === "post") setTimeout(() => event.target.querySelectorAll("button").forEach((one) => { one.disabled = true; }), 0);
  });
  addEventListener("pageshow", () => document.querySelectorAll("button:disabled").forEach((one) => { one.disabled = false; }));
  document.querySelectorAll("[data-print]").forEach((one) => one.addEventListener("click", () => print()));

  dress(document);
  tick();
  setInterval(tick, 1000);
  show("", view ? "connecting" : "");
  open();
})();
