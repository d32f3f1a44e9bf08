// Charts with their controls: which metric over which cost, on which scales, with which band, for which algorithms.
"use strict";
const Panels = (() => {
  const {element} = Format;

  function choice(name, options, chosen, change) {
    const select = element("select", {"aria-label": name, onchange: () => change(select.value)},
      ...options.map(([value, text]) => element("option", {value, selected: value === chosen}, text)));
    return select;
  }

  function toggle(text, checked, change) {
    const box = element("input", {type: "checkbox", checked, onchange: () => change(box.checked)});
    const label = element("label", {class: "switch"}, box, text);
    label.box = box;
    return label;
  }

  // A view is what the reader chose for all charts: data, hidden groups, band, target. A panel is one chart of it.
  function panel(figure, view) {
    const mine = {metric: figure.dataset.metric, axis: figure.dataset.axis, logX: false, logY: null};
    const place = figure.querySelector(".chart"), caption = figure.querySelector("figcaption");
    const table = element("div", {class: "scroll", tabindex: "0", role: "region"});
    const numbers = element("details", {class: "numbers", ontoggle: () => numbers.open && fill()}, element("summary", {}, "Numbers"), table);
    const save = element("button", {type: "button", class: "plain", onclick: () => download()}, "Save as SVG");
    const logY = toggle("log y", false, on => { mine.logY = on; draw(); });
    const logX = toggle("log x", false, on => { mine.logX = on; draw(); });
    const metrics = element("span"), axes = element("span");
    caption.after(element("div", {class: "controls"}, metrics, element("span", {class: "over"}, "over"), axes, element("span", {class: "switches"}, logY, logX)));
    place.after(element("div", {class: "under"}, numbers, save));
    place.removeAttribute("role");
    place.removeAttribute("aria-label");

    function offer() {
      const {metrics: known, axes: costs} = view.data;
      if (!(mine.metric in known)) mine.metric = Object.keys(known)[0];
      metrics.replaceChildren(choice("Metric", Object.entries(known).map(([k, m]) => [k, m.name]), mine.metric, value => { mine.metric = value; mine.logY = null; draw(); }));
      axes.replaceChildren(choice("Horizontal axis", Object.entries(costs).map(([k, a]) => [k, a.short]), mine.axis, value => { mine.axis = value; draw(); }));
    }

    function lines() {
      return view.data.groups.map((group, index) => ({group, index})).filter(({index}) => !view.hidden.has(index)).map(({group, index}) => ({
        label: group.label, group: index, colour: `var(--c${group.colour})`, dash: group.dash, crossed: group.diverged,
        points: points(group),
      }));
    }

    function points(group) {
      const key = [mine.metric, mine.axis, view.band].join(), kept = group.curves ||= new Map();
      if (!kept.has(key)) kept.set(key, Curves.curve(group.runs.map(i => view.data.runs[i]), mine.metric, mine.axis, view.band, view.data.quantiles));
      return kept.get(key);
    }

    function spec() {
      const metric = view.data.metrics[mine.metric], axis = view.data.axes[mine.axis], log = mine.logY ?? metric.falls;
      const drawn = lines(), value = v => Format.metric(v, metric.percent), cost = Format.quantity[axis.kind];
      const ends = drawn.filter(line => line.points.length).map(line => `${line.label} ends at ${value(line.points.at(-1).y)}`);
      return {
        lines: drawn, key: `${mine.metric} ${mine.axis} ${mine.logX}`,
        x: {name: axis.name, log: mine.logX, whole: mine.axis === "rounds", tick: cost, value: cost},
        y: {name: metric.name, log, limits: metric.percent ? [0, 1] : null, tick: v => (metric.percent ? `${Format.digits(100 * v)}%` : Format.number(v)), value},
        target: view.target && view.target.metric === mine.metric ? view.target.value : null,
        said: `${capital(metric.name)} over ${axis.short}. ${ends.join(", ")}. Arrow keys read values, plus looks closer, escape shows all; the numbers are below the chart.`,
        empty: drawn.length ? "Nothing was measured yet" : "All algorithms are hidden",
      };
    }

    function draw() {
      const metric = view.data.metrics[mine.metric], axis = view.data.axes[mine.axis];
      const told = `${capital(metric.name)} over ${axis.short}`;
      caption.textContent = told;
      figure.dataset.metric = mine.metric;
      figure.dataset.axis = mine.axis;
      figure.setAttribute("aria-label", told);
      table.setAttribute("aria-label", `Numbers: ${told}`);
      logY.box.checked = mine.logY ?? metric.falls;
      logX.box.checked = mine.logX;
      logX.title = "A logarithmic axis has no place for 0, the start.";
      Chart.draw(place, spec());
      if (numbers.open) fill();
    }

    // The chart as a table, thinned out to what can be read.
    function fill() {
      const {lines: drawn, x, y} = spec(), rows = [];
      for (const line of drawn) {
        const every = Math.max(1, Math.ceil(line.points.length / 25));
        line.points.forEach((p, i) => {
          if (i % every && i !== line.points.length - 1) return;
          const band = p.low === null ? "–" : `${y.value(p.low)} to ${y.value(p.high)}`;
          rows.push(element("tr", {}, element("th", {}, line.label), ...[x.value(p.x), y.value(p.y), band].map(text => element("td", {}, text))));
        });
      }
      const head = ["algorithm", x.name, y.name, "band"].map(text => element("th", {}, text));
      table.replaceChildren(element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows)));
    }

    function download() {
      const link = element("a", {download: `${mine.metric}-over-${mine.axis}.svg`, href: URL.createObjectURL(Chart.toFile(place.querySelector("svg")))});
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }

    new ResizeObserver(() => { if (place.chart && place.chart.size !== Chart.size(place)) draw(); }).observe(place);
    return {draw, offer};
  }

  const capital = text => text[0].toUpperCase() + text.slice(1);

  // Boxes that show and hide algorithms, with the look of their lines; the same ones stay, and with them the focus.
  function legend(place, view, change) {
    const names = JSON.stringify(view.data.groups.map(group => group.label));
    if (place.names !== names) place.replaceChildren(...view.data.groups.map((group, index) => entry(group, index, view, change)));
    place.names = names;
    view.data.groups.forEach((group, index) => {
      const fate = place.children[index].querySelector("em");
      fate.className = group.diverged ? "fate" : "going";
      fate.textContent = group.fate ? ` ${group.fate}` : "";
    });
  }

  function entry(group, index, view, change) {
    const box = element("input", {type: "checkbox", checked: !view.hidden.has(index), onchange: () => {
      view.hidden[box.checked ? "delete" : "add"](index);
      change();
    }});
    const swatch = element("span", {class: "swatch"});
    swatch.innerHTML = `<svg width="36" height="10" aria-hidden="true"><line x1="0" x2="36" y1="5" y2="5" style="stroke:var(--c${Number(group.colour)})" stroke-width="2.6" stroke-dasharray="${group.dash}"/></svg>`;
    const pointed = {onpointerenter: () => stress(index), onpointerleave: () => stress(null), onfocusin: () => stress(index), onfocusout: () => stress(null)};
    return element("label", pointed, box, swatch, element("span", {}, group.label, element("em")));
  }

  // Let the lines of one algorithm stand out while its name is pointed at or has the focus.
  function stress(index) {
    for (const node of document.querySelectorAll("[data-group]")) node.classList.toggle("dim", index !== null && node.dataset.group !== String(index));
  }

  const BANDS = {
    interval: "95 % interval of the mean", range: "least to greatest", none: "none",
  };

  // What a band means, in words, for the groups that are there.
  function bandWords(band, groups) {
    const most = Math.max(...groups.map(group => group.runs.length));
    const few = groups.filter(group => group.runs.length < 3).length;
    if (most < 2) return "Each line is one run; there is no band without further seeds.";
    if (band === "none") return "Lines are means over the seeds.";
    if (band === "range") return "Lines are means over the seeds; bands reach from the least to the greatest value of a seed.";
    if (most < 3) return "Lines are means over the seeds; with fewer than 3 seeds bands reach from the least to the greatest value.";
    return "Lines are means over the seeds. Bands are 95 % t-intervals of that mean: were all repeated with other seeds, and were the values " +
      "normal, 95 of 100 such intervals would hold the true mean, at each point on its own. With few seeds they are wide, and that is the truth." +
      (few ? " Where there are fewer than 3 seeds, bands reach from the least to the greatest value." : "");
  }

  return {BANDS, bandWords, choice, legend, panel, toggle};
})();
