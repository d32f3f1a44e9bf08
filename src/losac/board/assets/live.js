// Listen for changes of runs; if the connection is lost, the browser reconnects automatically.
"use strict";
const Live = (() => {
  function follow(change) {
    const badge = document.getElementById("live");
    let events = null, busy = false, again = false;
    const say = on => { badge.className = `badge ${on ? "on" : "off"}`; badge.textContent = on ? "live" : "connection lost, trying again"; };

    async function tell() {
      again = busy;
      if (busy) return;
      busy = true;
      try { await change(); } catch { say(false); }
      busy = false;
      if (again) tell();
    }

    // A hidden page holds no connection: a browser has only a few for each server.
    function listen() {
      if (document.hidden === !events) return;
      if (document.hidden) { events.close(); events = null; return; }
      events = new EventSource("/events");
      events.onopen = () => say(true);
      events.onerror = () => say(false);
      events.onmessage = tell;
    }

    document.addEventListener("visibilitychange", listen);
    addEventListener("pagehide", () => events && events.close());
    listen();
  }

  async function get(path, names = [], more = "") {
    const query = names.map(name => `run=${encodeURIComponent(name)}`).join("&");
    const answer = await fetch(`${path}?${query}${more}`);
    return answer.ok ? answer.json() : null;
  }

  // Charts of some runs, drawn again with every new round; controls stay as the reader set them.
  function charts(section) {
    const view = {data: null, hidden: new Set(), band: "interval", target: null};
    let panels = null, offered = "";
    return data => {
      section.hidden = !data;
      if (!data) return view;
      view.data = data;
      panels ||= [...section.querySelectorAll("figure")].map(figure => Panels.panel(figure, view));
      const metrics = Object.keys(data.metrics).join();
      section.querySelectorAll("figure")[1].hidden = Object.keys(data.metrics).length < 2;
      view.hidden = new Set([...view.hidden].filter(i => i < data.groups.length));
      Panels.legend(section.querySelector(".legend"), view, () => panels.forEach(panel => panel.draw()));
      if (offered !== metrics) panels.forEach(panel => panel.offer());
      offered = metrics;
      panels.forEach(panel => panel.draw());
      return view;
    };
  }

  return {charts, follow, get};
})();
