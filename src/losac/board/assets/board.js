// The list of runs: sorted, filtered, selected; and the curves of the selected.
"use strict";
(() => {
  const {element, duration, metric, number} = Format, find = id => document.getElementById(id);
  // Day and time, and the year if it is not this one.
  function time(text) {
    if (!text) return "–";
    const then = new Date(text), year = then.getFullYear() === new Date().getFullYear() ? undefined : "numeric";
    return then.toLocaleString([], {year, month: "short", day: "numeric", hour: "2-digit", minute: "2-digit"});
  }
  const MOST = 6;
  const COLUMNS = [
    ["name", "name", row => row.name, "text name"],
    ["algorithm", "algorithm", row => row.algorithm ?? "–", "text algorithm"],
    ["status", "status", row => row.status, "text"],
    ["round", "round", row => (row.last ? `${row.round} / ${row.last}` : "–"), "round"],
    ["loss", "loss", row => metric(row.loss ?? null, false), ""],
    ["accuracy", "accuracy", row => metric(row.accuracy ?? null, true), ""],
    ["rate", "rounds/s", row => (row.rate ? number(row.rate, 3) : "–"), "rate"],
    ["left", "time left", row => duration(row.left ?? null), "left"],
    ["started", "started", row => time(row.started), "started"],
  ];
  const lines = new Map(), body = document.querySelector("#runs tbody"), draw = Live.charts(find("curves"));
  let rows = [], order = ["started", -1], shown = [];
  let selected = new Set(new URLSearchParams(location.hash.slice(1)).getAll("run")), following = !selected.size;
  find("folder").textContent = GIVEN.folder;

  const box = element("th", {}, element("span", {class: "hidden-text"}, "Selected"));
  const heads = COLUMNS.map(([key, title, , kind]) => {
    const button = element("button", {type: "button", onclick: () => { order = [key, order[0] === key ? -order[1] : 1]; list(); }}, title);
    const head = element("th", {scope: "col", class: kind}, button);
    head.key = key;
    return head;
  });
  document.querySelector("#runs thead tr").append(box, ...heads);

  function line(row) {
    const check = element("input", {type: "checkbox", "aria-label": `Select ${row.name}`, onchange: () => choose([row.id], check.checked)});
    const cells = COLUMNS.map(([key, , , kind]) => element("td", {class: kind}));
    cells[0].append(element("a", {href: `/run?run=${encodeURIComponent(row.id)}`}, row.name));
    cells[2].append(element("span", {class: "badge"}));
    return {row: element("tr", {"data-run": row.id}, element("td", {}, check), ...cells), check, cells, texts: []};
  }

  // Write only what changed, to keep focus, selection and scroll position.
  function fill(entry, row) {
    entry.check.checked = selected.has(row.id);
    COLUMNS.forEach(([key, , text], i) => {
      const said = text(row), cell = entry.cells[i];
      if (i === 0 || entry.texts[i] === said) return;
      entry.texts[i] = said;
      if (key === "status") {
        cell.firstChild.textContent = said;
        cell.firstChild.className = `badge ${said}`;
        cell.title = row.reason || "";
      } else {
        cell.textContent = said;
        if (key === "round" && row.status === "running") cell.append(element("progress", {max: row.last, value: row.round, "aria-hidden": "true"}));
      }
    });
    if (row.reason) entry.row.title = row.reason;
  }

  function sorted() {
    const [key, way] = order, words = find("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = row => [row.name, row.algorithm, row.status, row.task, `seed${row.seed}`].join(" ").toLowerCase();
    const rank = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", {numeric: true}));
    const none = v => v === null || v === undefined;
    return rows.filter(row => words.every(word => text(row).includes(word))).sort((a, b) =>
      none(a[key]) || none(b[key]) ? none(a[key]) - none(b[key]) : way * rank(a[key], b[key]) || rank(a.id, b.id));
  }

  function list() {
    shown = sorted();
    for (const row of shown) {
      if (!lines.has(row.id)) lines.set(row.id, line(row));
      fill(lines.get(row.id), row);
    }
    const wanted = shown.map(row => lines.get(row.id).row);
    if (wanted.length !== body.children.length || wanted.some((node, i) => node !== body.children[i])) {
      const active = document.activeElement;
      body.replaceChildren(...wanted);
      if (body.contains(active)) active.focus({preventScroll: true});
    }
    for (const head of heads) {
      if (head.key === order[0]) head.setAttribute("aria-sort", order[1] > 0 ? "ascending" : "descending"); else head.removeAttribute("aria-sort");
    }
    const running = rows.filter(row => row.status === "running").length;
    find("count").textContent = `${shown.length} of ${rows.length} runs, ${running} running, ${selected.size} selected`;
    find("all").checked = shown.length > 0 && shown.every(row => selected.has(row.id));
    const names = [...selected].map(name => `run=${encodeURIComponent(name)}`).join("&");
    find("report").href = `/report?${names}`;
    find("report").setAttribute("aria-disabled", String(!selected.size));
    history.replaceState(null, "", names ? `#${names}` : location.pathname);
  }

  async function curves() {
    const names = rows.filter(row => selected.has(row.id)).map(row => row.id);
    const together = find("together").checked;
    const data = names.length ? await Live.get("/api/curves", names, together ? "" : "&apart=1") : null;
    draw(data);
    find("none").hidden = Boolean(data);
    find("none").textContent = !rows.length ? "No runs here yet. They appear as soon as losac run --out or losac compare --out writes into this folder."
      : names.length ? "The selected runs have measured nothing yet; curves appear with the first evaluation." : "Select runs to see their curves.";
    if (data) find("words").textContent = Panels.bandWords("interval", data.groups);
  }

  function choose(names, on) {
    following = false;
    for (const name of names) selected[on ? "add" : "delete"](name);
    list();
    curves();
  }

  // Until the reader selects, the runs that are going are selected as they come; the latest where none is.
  function follow() {
    const latest = rows.filter(row => row.started).sort((a, b) => (a.started < b.started ? 1 : -1));
    const going = rows.filter(row => row.status === "running" || selected.has(row.id));
    selected = new Set((going.length ? going : latest).slice(0, MOST).map(row => row.id));
  }

  async function refresh() {
    const found = await Live.get("/api/runs");
    if (!found) return;
    rows = found;
    const there = new Set(rows.map(row => row.id));
    selected = new Set([...selected].filter(name => there.has(name)));
    if (following) follow();
    list();
    await curves();
  }

  find("filter").addEventListener("input", list);
  find("all").addEventListener("change", event => choose(shown.map(row => row.id), event.target.checked));
  find("together").addEventListener("change", curves);
  Live.follow(refresh);
})();
