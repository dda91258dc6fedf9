// For single-page applications: waits when an API answers "wait", and tells when a session ends.
// See docs/single-page-apps.md. Styles only through CSSOM, which every policy of a site allows.
(() => {
const w = ⟪words⟫, real = fetch, waits = {}, me = document.currentScript.dataset, with_ = { credentials: "include" };
const LINE = /^(waiting|parked|prequeue|granted|paused|hold|none|missed|reset)$/;
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));
const json = async (url, more) => (await real(url, { ...with_, ...more })).json();
const make = (tag, text, into) => { const n = document.createElement(tag); n.textContent = text; into.append(n); return n; };
const box = () => { const d = make("dialog", "", document.documentElement); d.lang = w.lang; d.dir = w.dir; return d; };

// One wait for all requests of a room; `enter` takes the place, or the turn, without the request.
const wait = async (status, j, enter) => {
  const d = box(), p = make("p", w.wait, d);
  d.ariaLabel = make("b", w.title, d).textContent;
  const n = make("p", "", d);
  let told = 0;
  d.prepend(n);
  d.showModal();
  for (;;) {
    if (/none|granted/.test(j.state)) await enter();
    if (j.state == "missed") await real(new URL(j.rejoin_url, status), { ...with_, method: "POST", redirect: "manual" });
    if (!/waiting|parked|prequeue|paused|hold/.test(j.state)) break;
    const late = Date.now() - told > 6e4;
    if (late) told = Date.now();
    n.ariaLive = late ? "polite" : "off";
    n.textContent = j.position ? w.place.replace("{count}", j.position.toLocaleString(w.lang)) : "";
    await sleep((document.hidden ? 60 : j.poll_after || 5) * 1e3);
    j = await json(status).catch(() => j);
  }
  d.remove();
};
})();
