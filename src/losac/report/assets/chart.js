// One chart as SVG: lines with bands, a crosshair for mouse, finger and keyboard, and a stretch of x to look into.
"use strict";
const Chart = (() => {
  const SPACE = "http://www.w3.org/2000/svg";
  const MOST = 1200;
  const EDGE = {left: 58, right: 14, top: 10, bottom: 44};
  let made = 0;

  const least = values => values.reduce((a, b) => Math.min(a, b), Infinity);
  const greatest = values => values.reduce((a, b) => Math.max(a, b), -Infinity);

  function shape(name, attributes, text) {
    const node = document.createElementNS(SPACE, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  }

  function linearTicks(low, high, most, whole) {
    const rough = (high - low) / Math.max(most, 1), base = 10 ** Math.floor(Math.log10(rough));
    let step = [1, 2, 5, 10].map(k => k * base).find(s => s >= rough * 0.999);
    if (whole) step = Math.max(1, Math.round(step));
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) ticks.push(i * step);
    return ticks.map(v => Number(v.toPrecision(12)));
  }

  function logTicks(low, high, most) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    for (const parts of [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 5], [1, 3], [1]]) {
      const ticks = [];
      for (let k = first; k <= last; k++) for (const p of parts) ticks.push(p * 10 ** k);
      const inside = ticks.filter(v => v >= low * 0.9999 && v <= high * 1.0001);
      if (inside.length <= most) return inside.length > 1 ? inside : linearTicks(low, high, most);
    }
    const every = Math.ceil((last - first + 1) / most), ticks = [];
    for (let k = first; k <= last; k += every) ticks.push(10 ** k);
    return ticks.filter(v => v >= low * 0.9999 && v <= high * 1.0001);
  }

  function scale(low, high, from, to, log) {
    const t = log ? Math.log10 : v => v;
    const a = t(low), b = t(high), slope = (to - from) / (b - a || 1);
    const place = v => from + (t(v) - a) * slope;
    place.back = pixel => { const v = a + (pixel - from) / slope; return log ? 10 ** v : v; };
    return place;
  }

  // The range of y: all means, and of the bands as much as does not press the means flat.
  function heights(lines, log, limits) {
    const t = log ? Math.log10 : v => v, ok = v => v !== null && Number.isFinite(v) && (!log || v > 0);
    const middle = lines.flatMap(line => line.points.map(p => p.y)).filter(ok).map(t);
    const outer = lines.flatMap(line => line.points.flatMap(p => [p.low, p.high])).filter(ok).map(t);
    let low = least(middle), high = greatest(middle);
    const room = (high - low) * 0.2 || Math.abs(high) * 0.1 || 1;
    low = Math.max(Math.min(low, least(outer)), low - room) - room * 0.12;
    high = Math.min(Math.max(high, greatest(outer)), high + room) + room * 0.12;
    const range = log ? [10 ** low, 10 ** high] : [low, high];
    return limits ? [Math.max(range[0], limits[0]), Math.min(range[1], limits[1])] : range;
  }

  function visible(spec, range) {
    const fits = p => (!spec.x.log || p.x > 0) && (!spec.y.log || p.y > 0);
    const inside = p => !range || (p.x >= range[0] && p.x <= range[1]);
    return spec.lines.map(line => ({...line, points: line.points.filter(fits)}))
      .map(line => ({...line, near: thinned(line.points.filter(inside))})).filter(line => line.points.length);
  }

  // Of more points than a chart has pixels, the least and the greatest of each short stretch, and the last.
  function thinned(points) {
    if (points.length <= MOST) return points;
    const every = Math.ceil(2 * points.length / MOST), kept = [];
    for (let start = 0; start < points.length; start += every) {
      let low = start, high = start;
      for (let i = start; i < Math.min(start + every, points.length); i++) {
        if (points[i].y < points[low].y) low = i;
        if (points[i].y > points[high].y) high = i;
      }
      for (const i of new Set([Math.min(low, high), Math.max(low, high)])) kept.push(points[i]);
    }
    if (kept.at(-1) !== points.at(-1)) kept.push(points.at(-1));
    return kept;
  }

  const size = place => `${place.clientWidth} ${place.clientHeight}`;

  function path(points, x, y, key) {
    return points.map((p, i) => `${i ? "L" : "M"}${x(p.x).toFixed(1)},${y(p[key]).toFixed(1)}`).join("");
  }

  function bandPath(points, x, y, floor) {
    const with_ = points.filter(p => p.low !== null);
    if (with_.length < 2) return "";
    const down = v => { const at = y(v); return Number.isFinite(at) ? Math.max(-2000, Math.min(2000, at)) : floor; };
    const top = with_.map((p, i) => `${i ? "L" : "M"}${x(p.x).toFixed(1)},${down(p.high).toFixed(1)}`);
    const under = [...with_].reverse().map(p => `L${x(p.x).toFixed(1)},${down(p.low).toFixed(1)}`);
    return top.join("") + under.join("") + "Z";
  }

  // Draw a chart into a place; redrawing keeps the reader's zoom.
  function draw(place, spec) {
    const state = place.chart || (place.chart = {range: null, at: null, id: ++made});
    if (state.key !== spec.key) Object.assign(state, {range: null, at: null, key: spec.key});
    Object.assign(state, {spec, size: size(place)});
    const width = Math.max(place.clientWidth, 220), height = Math.max(place.clientHeight, 180);
    const lines = visible(spec, state.range);
    const svg = shape("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0", "aria-label": spec.said});
    const old = place.querySelector("svg"), focused = old && old === document.activeElement;
    const shown = lines.filter(line => line.near.length);
    if (!shown.length) {
      svg.append(shape("text", {x: width / 2, y: height / 2, "text-anchor": "middle", class: "axis-name"}, spec.empty));
    } else {
      paint(svg, shown, spec, state, width, height);
    }
    if (old) old.replaceWith(svg); else place.prepend(svg);
    if (focused) svg.focus({preventScroll: true});
    const again = place.querySelector(".zoom-out") || place.appendChild(
      Format.element("button", {type: "button", class: "zoom-out", onclick: () => { state.range = null; draw(place, state.spec); }}, "Whole range"));
    again.hidden = !state.range;
    if (shown.length) listen(place, svg, state);
    point(place, state.at, false);
  }

  function paint(svg, lines, spec, state, width, height) {
    const xs = lines.flatMap(line => line.near.map(p => p.x));
    let [x0, x1] = state.range || [spec.x.log ? least(xs) : Math.min(0, least(xs)), greatest(xs)];
    if (x0 === x1) x1 = x0 + (x0 || 1);
    const [y0, y1] = heights(lines.map(line => ({points: line.near})), spec.y.log, spec.y.limits);
    const bottom = height - EDGE.bottom, right = width - EDGE.right;
    const x = scale(x0, x1, EDGE.left, right, spec.x.log), y = scale(y0, y1, bottom, EDGE.top, spec.y.log);
    Object.assign(state, {x, y, lines, frame: [EDGE.left, right, EDGE.top, bottom]});
    const across = (spec.x.log ? logTicks : linearTicks)(x0, x1, Math.floor((right - EDGE.left) / 75), spec.x.whole);
    const up = (spec.y.log ? logTicks : linearTicks)(y0, y1, Math.max(3, Math.floor((bottom - EDGE.top) / 38)));
    for (const v of up) {
      svg.append(shape("line", {x1: EDGE.left, x2: right, y1: y(v), y2: y(v), class: "grid"}),
        shape("text", {x: EDGE.left - 7, y: y(v) + 4, "text-anchor": "end", class: "tick"}, spec.y.tick(v)));
    }
    for (const v of across) {
      svg.append(shape("line", {x1: x(v), x2: x(v), y1: EDGE.top, y2: bottom, class: "grid"}),
        shape("text", {x: Math.min(x(v), width - 22), y: bottom + 17, "text-anchor": "middle", class: "tick"}, spec.x.tick(v)));
    }
    svg.append(shape("path", {d: `M${EDGE.left},${EDGE.top}V${bottom}H${right}`, class: "frame"}),
      shape("text", {x: (EDGE.left + right) / 2, y: height - 6, "text-anchor": "middle", class: "axis-name"}, spec.x.name),
      shape("text", {transform: `translate(13 ${(EDGE.top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle", class: "axis-name"}, spec.y.name));
    const clip = `clip${state.id}`, hole = shape("clipPath", {id: clip});
    hole.append(shape("rect", {x: EDGE.left, y: EDGE.top - 2, width: right - EDGE.left + 2, height: bottom - EDGE.top + 2}));
    const inner = shape("g", {"clip-path": `url(#${clip})`});
    svg.append(hole, inner);
    if (spec.target !== null && spec.target >= y0 && spec.target <= y1) {
      inner.append(shape("line", {x1: EDGE.left, x2: right, y1: y(spec.target), y2: y(spec.target), class: "target"}),
        shape("text", {x: EDGE.left + 6, y: y(spec.target) - 5, class: "tick"}, `target ${spec.y.tick(spec.target)}`));
    }
    for (const line of lines) inner.append(shape("path", {d: bandPath(line.near, x, y, bottom + 50), class: "band", style: `fill:${line.colour}`, "data-group": line.group}));
    for (const line of lines) {
      const look = {class: "line", style: `stroke:${line.colour}`, "stroke-dasharray": line.dash, "data-label": line.label, "data-group": line.group};
      inner.append(shape("path", {...look, d: path(line.near, x, y, "y")}));
      if (line.near.length === 1) inner.append(shape("circle", {cx: x(line.near[0].x), cy: y(line.near[0].y), r: 3.5, style: `fill:${line.colour}`}));
      if (line.crossed && line.near.includes(line.points.at(-1))) svg.append(cross(line, x, y, bottom, right));
    }
    svg.append(shape("g", {class: "cross-hair"}));
  }

  function cross(line, x, y, bottom, right) {
    const end = line.points.at(-1), cx = Math.min(x(end.x), right), cy = Math.max(EDGE.top, Math.min(bottom, y(end.y)));
    return shape("path", {d: `M${cx - 5},${cy - 5}l10,10m0,-10l-10,10`, class: "fate-cross", style: `stroke:${line.colour}`});
  }

  function nearest(points, x) {
    return points.reduce((best, p) => (Math.abs(p.x - x) < Math.abs(best.x - x) ? p : best));
  }

  // Show the values near an x, or nothing; aloud where the keyboard asked for them.
  function point(place, at, aloud) {
    const state = place.chart, svg = place.querySelector("svg"), hair = svg.querySelector(".cross-hair");
    const box = place.querySelector(".reading") || place.appendChild(Format.element("div", {class: "reading", "aria-hidden": "true"}));
    const voice = place.querySelector(".voice") || place.appendChild(Format.element("div", {class: "voice hidden-text", "aria-live": "polite"}));
    state.at = at;
    box.hidden = at === null || !hair;
    if (hair) hair.replaceChildren();
    if (box.hidden) return;
    const {x, y, lines, spec, frame} = state;
    const found = lines.map(line => [line, nearest(line.near, at)]);
    const main = found.reduce((best, next) => (Math.abs(next[1].x - at) < Math.abs(best[1].x - at) ? next : best))[1];
    hair.append(shape("line", {x1: x(main.x), x2: x(main.x), y1: frame[2], y2: frame[3], class: "hair"}));
    for (const [line, p] of found) hair.append(shape("circle", {cx: x(p.x), cy: y(p.y), r: 3.6, style: `fill:${line.colour}`, class: "dot"}));
    const rows = found.sort((a, b) => b[1].y - a[1].y).map(([line, p]) => Format.element("div", {},
      Format.element("i", {style: `background:${line.colour}`}), `${line.label} `, Format.element("b", {}, spec.y.value(p.y)),
      p.low === null ? "" : Format.element("small", {}, ` ${spec.y.value(p.low)} to ${spec.y.value(p.high)}`)));
    const head = `${spec.x.name} ${spec.x.value(main.x)}`;
    box.replaceChildren(Format.element("strong", {}, head), ...rows);
    const past = x(main.x) > (frame[0] + frame[1]) / 2;
    box.style.left = past ? "auto" : `${x(main.x) + 12}px`;
    box.style.right = past ? `${place.clientWidth - x(main.x) + 12}px` : "auto";
    if (aloud) voice.textContent = `${head}: ${found.map(([line, p]) => `${line.label} ${spec.y.value(p.y)}`).join(", ")}`;
  }

  function listen(place, svg, state) {
    const within = event => event.clientX - svg.getBoundingClientRect().left;
    const clamp = pixel => Math.max(state.frame[0], Math.min(state.frame[1], pixel));
    const look = range => { state.range = range; draw(place, state.spec); };
    let from = null;
    svg.addEventListener("pointermove", event => {
      point(place, state.x.back(clamp(within(event))), false);
      if (from === null) return;
      const to = clamp(within(event)), [left, right, top, bottom] = state.frame;
      svg.querySelector(".cross-hair").append(shape("rect", {x: Math.min(from, to), y: top, width: Math.abs(to - from), height: bottom - top, class: "stretch"}));
    });
    svg.addEventListener("pointerdown", event => { if (event.pointerType === "mouse" && event.button === 0) from = clamp(within(event)); });
    svg.addEventListener("pointerup", event => {
      const to = clamp(within(event)), start = from;
      from = null;
      if (start !== null && Math.abs(to - start) > 12) look([state.x.back(Math.min(start, to)), state.x.back(Math.max(start, to))]);
    });
    svg.addEventListener("pointerleave", () => { from = null; if (document.activeElement !== svg) point(place, null, false); });
    svg.addEventListener("blur", () => point(place, null, false));
    svg.addEventListener("dblclick", () => look(null));
    svg.addEventListener("keydown", event => {
      const stops = [...new Set(state.lines.flatMap(line => line.near.map(p => p.x)))].sort((a, b) => a - b);
      const here = state.at === null ? -1 : stops.reduce((best, v, i) => (Math.abs(v - state.at) < Math.abs(stops[best] - state.at) ? i : best), 0);
      const moves = {ArrowRight: Math.min(here + 1, stops.length - 1), ArrowLeft: here < 0 ? stops.length - 1 : Math.max(here - 1, 0), Home: 0, End: stops.length - 1};
      if (event.key in moves) point(place, stops[moves[event.key]], true);
      else if (event.key === "+") { const half = Math.ceil(stops.length / 4); look([stops[Math.max(0, here - half)], stops[Math.min(stops.length - 1, Math.max(here, 0) + half)]]); }
      else if (event.key === "-" || event.key === "Escape") look(null);
      else return;
      event.preventDefault();
    });
  }

  // The chart as a file: colours that the page keeps in variables are written out.
  function toFile(svg) {
    const copy = svg.cloneNode(true), live = [...svg.querySelectorAll("*")], still = [...copy.querySelectorAll("*")];
    live.forEach((node, i) => {
      const style = getComputedStyle(node);
      still[i].setAttribute("style", ["fill", "stroke", "stroke-width", "opacity", "font-size", "font-family"].map(k => `${k}:${style.getPropertyValue(k)}`).join(";"));
    });
    copy.setAttribute("xmlns", SPACE);
    return new Blob([new XMLSerializer().serializeToString(copy)], {type: "image/svg+xml"});
  }

  return {draw, linearTicks, logTicks, size, toFile};
})();
