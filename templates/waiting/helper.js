// For single-page applications (docs/single-page-apps.md): waits when a room says so, then repeats
// what may be repeated, and tells when the session ends. Under 2 KB as it is served, compressed.
(() => {
  "use strict";
  const w = ⟪words⟫, real = fetch, waits = {}, watched = {}, me = document.currentScript;
  const own = { credentials: "include" };
  const ASKS = /^(waiting|parked|prequeue|paused|hold|granted|none|missed|reset)$/;
  const GOES_ON = /^(waiting|parked|prequeue|paused|hold|busy|store_down|limited)$/;

  const flying = new Set();
  let first;

  const json = async (url) => (await real(url, own)).json();
  const add = (box, tag, text) => {
    const n = document.createElement(tag);
    n.lang = w.lang;
    n.dir = "auto";
    n.textContent = text;
    box.append(n);
    return n;
  };
  const dialog = () => add(document.documentElement, "dialog", "");

  // One wait for all requests to a room. Who may not repeat its request takes the place, and later
  // the turn, by a HEAD of the same address.
  const wait = async (url, j, response, safe) => {
    const enter = () => real(response.url, { ...own, method: "HEAD" });
    if (j.state === "none") {
      // Each answer to a request without a cookie brings a cookie of its own, and the last one stays: a place
      // taken with an earlier one would be nobody's. So those that are under way are awaited.
      await (first = Promise.race([Promise.allSettled([...flying]), new Promise((go) => setTimeout(go, 5000))]));
      if (safe) return;
      await enter();
      j = await json(url);
    }
    const d = dialog(), place = add(d, "p", w.title);
    d.ariaLabel = w.title;
    add(d, "p", w.wait);
    d.showModal();
    let told = 0;
    while (GOES_ON.test(j.state)) {
      // Screen readers hear of a new position once a minute.
      const now = Date.now(), due = now - told > 60000;
      place.ariaLive = due ? "polite" : "off";
      if (due) told = now;
      if (j.position) place.textContent = w.place.replace("{count}", j.position.toLocaleString(w.lang));
      await new Promise((go) => setTimeout(go, (document.hidden ? 60 : j.poll_after || 5) * 1000));
      j = await json(url).catch(() => j);
    }
    d.close();
    d.remove();
    if (j.state === "missed") await real(new URL(j.rejoin_url, url), { ...own, method: "POST", redirect: "manual" });
    if (!safe) await enter();
    watch(url.replace(/status$/, "session"));
  };

  window.fetch = async (input, init = {}) => {
    const safe = /^(GET|HEAD)$/i.test(init.method || input.method || "GET");
    let before;
    for (let n = 9; ; n--) {
      await first;
      const sent = real(input.clone ? input.clone() : input, init);
      flying.add(sent);
      const response = await sent.finally(() => flying.delete(sent));
      const state = response.headers.get("X-Waiting-Room");
      // Without a cookie twice: it cannot be kept.
      if (!n || !ASKS.test(state) || (state === "none" && before === state)) return response;
      before = state;
      const j = await response.clone().json().catch(() => null);
      if (!j) return response;
      const url = new URL(j.status_url, response.url).href;
      waits[url] = waits[url] || wait(url, j, response, safe).finally(() => delete waits[url]);
      await waits[url];
      if (!safe && !init.corvusRepeat) return response;
    }
  };

  const watch = (url) => {
    if (watched[url]) return;
    watched[url] = true;
    look(url);
  };
  const look = async (url) => {
    const j = await json(url).catch(() => ({}));
    const left = j.warn_at ? j.warn_at - j.server_time : 60000;
    if (left > 0) return setTimeout(look, Math.min(left + 500, 900000), url);
    const d = dialog(), end = new Date(Date.now() + j.ends_at - j.server_time);
    d.role = "alert";
    // Styles only through CSSOM, which no policy of a site forbids.
    Object.assign(d.style, { position: "fixed", top: "auto", bottom: "1em" });
    // Not by show(): that would take the focus from who is typing.
    d.open = true;
    add(d, "p", w.ends.replace("{time}", end.toLocaleTimeString(w.lang, { timeStyle: "short" })));
    add(d, "button", j.extensions_left ? w.more : "OK").onclick = async () => {
      d.remove();
      if (!j.extensions_left) return;
      await real(url, { ...own, method: "POST" });
      look(url);
    };
  };
  if (me.dataset.session) watch(new URL(me.dataset.session, me.src).href);
})();
