// The report page: one view for all charts, the table to a target, buttons that copy.
"use strict";
(() => {
  const {element} = Format, find = selector => document.querySelector(selector);
  const view = {data: DATA, hidden: new Set(), band: "interval", target: DATA.target && {...DATA.target}};
  const panels = [...document.querySelectorAll("figure[data-metric]")].map(figure => Panels.panel(figure, view));
  const redraw = () => panels.forEach(panel => panel.draw());

  const words = find("#band-words");
  const bands = Panels.choice("Band", Object.entries(Panels.BANDS), view.band, value => { view.band = value; tell(); redraw(); });
  const tell = () => { words.textContent = Panels.bandWords(view.band, DATA.groups); };
  find("#band").append(element("label", {}, "Band ", bands));
  find("#band").hidden = DATA.groups.every(group => group.runs.length < 2);
  Panels.legend(find(".legend"), view, redraw);
  panels.forEach(panel => panel.offer());
  tell();
  redraw();

  const several = values => values.length > 1;
  const plusMinus = (values, show) => (values.length ? show(Curves.mean(values)) + (several(values) ? ` ± ${show(Curves.deviation(values))}` : "") : "–");

  function verdict(found) {
    if (!found.counted) return "–";
    if (!found.reached) return found.going ? "not yet" : "never";
    const some = found.reached < found.runs ? ` (${found.reached} of ${found.runs})` : "";
    return plusMinus(found.over("rounds"), v => v.toFixed(0)) + some;
  }

  function targetTable() {
    const {metric, value} = view.target, falls = DATA.metrics[metric].falls;
    const axes = Object.entries(DATA.axes).filter(([axis]) => axis !== "rounds");
    const rows = DATA.groups.map(group => {
      const found = Curves.toTarget(group.runs.map(i => DATA.runs[i]), metric, value, falls);
      const costs = axes.map(([axis, {kind}]) => (found.reached ? Format.quantity[kind](Curves.mean(found.over(axis))) : "–"));
      return element("tr", {}, element("th", {scope: "row"}, group.label), ...[verdict(found), ...costs].map(text => element("td", {}, text)));
    });
    const head = ["algorithm", "rounds", ...axes.map(([, axis]) => axis.short)].map(text => element("th", {scope: "col"}, text));
    find("#target-table").replaceChildren(element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows)));
    find("#target-words").textContent = `The first evaluated round with ${DATA.metrics[metric].name} at ${falls ? "most" : "least"} ` +
      `${Format.metric(value, DATA.metrics[metric].percent)}, and what had been sent, computed and waited for by then.`;
  }

  if (view.target) {
    const metrics = Object.entries(DATA.metrics).map(([key, metric]) => [key, metric.name]);
    const value = element("input", {type: "number", step: "any", value: String(view.target.value), "aria-label": "Target value", inputmode: "decimal",
      oninput: () => { if (value.value !== "" && Number.isFinite(value.valueAsNumber)) { view.target.value = value.valueAsNumber; targetTable(); redraw(); } }});
    const metric = Panels.choice("Target metric", metrics, view.target.metric, chosen => {
      view.target = {metric: chosen, value: DATA.targets[chosen]};
      value.value = String(view.target.value);
      targetTable();
      redraw();
    });
    find("#target-form").append(element("label", {}, "Metric ", metric), element("label", {}, "reaches ", value));
    targetTable();
  }

  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.addEventListener("click", async () => {
      const text = document.getElementById(button.dataset.copy).textContent, before = button.textContent;
      button.textContent = (await copied(text)) ? "Copied" : "Select and copy by hand";
      setTimeout(() => { button.textContent = before; }, 2000);
    });
  }

  // A page that was opened from a file may not reach the clipboard by the newer way.
  async function copied(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = element("textarea", {class: "hidden-text"});
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  for (const [event, printing] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(event, () => {
      document.body.classList.toggle("printing", printing);
      redraw();
    });
  }
})();
