// One run: how far it is, its curves, its configuration and the end of its log.
"use strict";
(() => {
  const {element, duration, metric, number, tidy} = Format, find = id => document.getElementById(id);
  const draw = Live.charts(find("curves"));
  find("report").href = `/report?run=${encodeURIComponent(GIVEN.run)}`;

  const told = value => (typeof value === "object" ? JSON.stringify(value, (_, part) => (typeof part === "number" ? tidy(part) : part)) : String(typeof value === "number" ? tidy(value) : value));
  const pairs = content => Object.entries(content).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, told(value))]);
  const card = (title, content) => element("div", {}, element("h3", {}, title), element("dl", {}, ...pairs(content)));

  function log(text) {
    const place = find("log"), atEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 4;
    if (place.textContent === text) return;
    place.textContent = text || "Nothing yet.";
    if (atEnd) place.scrollTop = place.scrollHeight;
  }

  Live.follow(async () => {
    const found = await Live.get("/api/run", [GIVEN.run]);
    if (!found) return;
    const {row, experiment, about, log: text} = found;
    find("name").textContent = row.name;
    find("status").textContent = row.status;
    find("status").className = `badge ${row.status}`;
    find("reason").hidden = !row.reason;
    find("reason").textContent = row.reason || "";
    const facts = {algorithm: row.algorithm, problem: row.task, seed: row.seed, round: row.last ? `${row.round} of ${row.last}` : null, loss: metric(row.loss ?? null, false),
      accuracy: metric(row.accuracy ?? null, true), "rounds/s": row.rate ? number(row.rate, 3) : null, "time left": row.left ? duration(row.left) : null};
    find("facts").replaceChildren(...Object.entries(facts).filter(([, v]) => v !== null && v !== undefined && v !== "–").map(([k, v]) => element("div", {}, element("dt", {}, k), element("dd", {}, String(v)))));
    log(text);
    const {versions = {}, hardware = {}, ...others} = about;
    find("configuration").replaceChildren(...Object.entries({...experiment, versions, hardware, run: others}).map(([name, part]) => card(name, part)));
    draw(await Live.get("/api/curves", [GIVEN.run], "&apart=1"));
  });
})();
