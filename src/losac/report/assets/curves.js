// What charts and tables show, computed from the runs that the page carries. Pure functions.
"use strict";
const Curves = (() => {
  const known = (run, metric) => (run.metrics[metric] || []).map((v, i) => (v === null ? -1 : i)).filter(i => i >= 0);
  const mean = values => values.reduce((sum, v) => sum + v, 0) / values.length;

  function deviation(values) {
    if (values.length < 2) return 0;
    const middle = mean(values);
    return Math.sqrt(values.reduce((sum, v) => sum + (v - middle) ** 2, 0) / (values.length - 1));
  }

  // The band of some values: the 95 % t-interval of their mean where there are three or more, else least to greatest.
  function spread(values, band, quantiles) {
    if (values.length < 2 || band === "none") return [null, null];
    if (band === "range" || values.length < 3) return [Math.min(...values), Math.max(...values)];
    const half = quantiles[values.length] * deviation(values) / Math.sqrt(values.length), middle = mean(values);
    return [middle - half, middle + half];
  }

  // A metric over an axis at the rounds that all runs have measured; so it ends where the shortest run ends.
  function curve(runs, metric, axis, band, quantiles) {
    const places = runs.map(run => new Map(known(run, metric).map(i => [run.rounds[i], i])));
    const common = places.length ? [...places[0].keys()].filter(round => places.every(place => place.has(round))) : [];
    const values = new Array(runs.length);
    return common.map(round => {
      let x = 0;
      runs.forEach((run, r) => {
        const at = places[r].get(round);
        values[r] = run.metrics[metric][at];
        x += run[axis][at] / runs.length;
      });
      const [low, high] = spread(values, band, quantiles);
      return {x, y: mean(values), low, high};
    });
  }

  // Which evaluation of a run is the first to reach a value; -1 where none does.
  function reach(run, metric, value, falls) {
    const there = v => v !== null && (falls ? v <= value : v >= value);
    return (run.metrics[metric] || []).findIndex(there);
  }

  // What it took the runs of a group to reach a value; diverged runs count in no number.
  function toTarget(runs, metric, value, falls) {
    const counted = runs.filter(run => run.diverged === null);
    const hits = counted.map(run => [run, reach(run, metric, value, falls)]).filter(([, at]) => at >= 0);
    const over = axis => hits.map(([run, at]) => run[axis][at]);
    return {
      reached: hits.length, counted: counted.length, runs: runs.length, going: counted.some(run => run.status === "running"),
      over,
    };
  }

  return {curve, deviation, mean, reach, spread, toTarget};
})();
