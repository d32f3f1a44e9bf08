// Numbers as people read them, and small helpers to build elements.
"use strict";
const Format = (() => {
  const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  // A number without what arithmetic has left in its last bits; seeds and other whole numbers stay as they are.
  const tidy = value => (Number.isInteger(value) ? value : Number(value.toPrecision(12)));
  const digits = (value, n = 4) => String(Number(Number(value).toPrecision(n)));

  function number(value, n = 4) {
    if (value === null || !Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(n - 1).replace(/\.?0+e/, "e") : digits(value, n);
  }

  function scaled(value, unit, n = 3) {
    const [by, prefix] = PREFIXES.find(([limit]) => Math.abs(value) >= limit * 0.9995) || [1, ""];
    const tail = prefix + unit;
    return digits(value / by, n) + (tail ? "\u00a0" + tail : "");
  }

  const quantity = {
    rounds: value => digits(value, 6),
    bytes: value => scaled(value, "B"),
    count: value => scaled(value, ""),
    seconds: value => duration(value),
  };

  function duration(seconds) {
    if (seconds === null || !Number.isFinite(seconds)) return "–";
    if (seconds < 100) return `${digits(seconds, 3)}\u00a0s`;
    if (seconds < 6000) return `${digits(seconds / 60, 3)}\u00a0min`;
    return `${digits(seconds / 3600, 3)}\u00a0h`;
  }

  const metric = (value, percent, n = 4) =>
    value === null ? "–" : percent ? `${(100 * value).toFixed(1)}\u00a0%` : number(value, n);

  function element(name, attributes = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value === true) node.setAttribute(key, "");
      else if (value !== false && value !== null) node.setAttribute(key, value);
    }
    node.append(...children);
    return node;
  }

  return {digits, duration, element, metric, number, quantity, scaled, tidy};
})();
