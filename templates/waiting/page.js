(() => {
"use strict";
const $ = (id) => document.getElementById(id);
const d = JSON.parse($("d").textContent), w = JSON.parse($("w").textContent);
const LINE = ["waiting", "parked", "paused", "prequeue", "hold"], GONE = ["missed", "reset", "left"];
const MILES = [1000, 500, 100, 50, 10, 5, 1], BUCKETS = [60, 120, 300, 600, 900, 1800, 3600, 7200, 14400];
const born = performance.now();
let state = d.state, shown = d.position || 0, ahead = d.ahead, bucket = -1, poll = d.poll || 30, errors = 0;
let timer = 0, busy = false, going = false, first = true, lastPoll = 0, touched = -1e9;
let said = "", saidAt = -1e9, titled = Date.now(), titleTimer = 0, wanted = "";
let grantedAt = 0, claimEnd = 0, warned = false, tick = 0, audio = null;

// Preferences stay in this browser.
let prefs = { auto: true, sound: false, notify: false };
try { Object.assign(prefs, JSON.parse(localStorage.getItem("corvus") || "{}")); } catch (e) { /* storage is off */ }
const keep = () => { try { localStorage.setItem("corvus", JSON.stringify(prefs)); } catch (e) { /* storage is off */ } };

// Words: Intl where the browser has it, the page's own patterns otherwise.
const make = (f, other) => { try { return f(); } catch (e) { return other; } };
const numbers = make(() => new Intl.NumberFormat(w.tag), { format: String });
const rules = make(() => new Intl.PluralRules(w.tag), { select: () => "other" });
const lengths = make(() => new Intl.DurationFormat(w.tag, { style: "long" }), null);
const num = (n) => numbers.format(n);
const form = (forms, n) => (forms[rules.select(n)] || forms.other).replace(/\{(count|0)\}/, num(n));
const clock = (m) => {
  const h = Math.floor(m / 60), r = m % 60;
  if (!h) return form(w.units.minute, r);
  if (!r) return form(w.units.hour, h);
  if (lengths) return lengths.format({ hours: h, minutes: r });
  return w.join.replace("{0}", form(w.units.hour, h)).replace("{1}", form(w.units.minute, r));
};
const span = (s) => {
  s = Math.max(1, Math.floor(s));
  return s < 60 || (s < 120 && s % 60) ? form(w.units.second, s) : clock(Math.floor(s / 60));
};
const guess = (s) => {
  if (s < 60) return w.moment;
  const m = Math.ceil(s / 60), step = m <= 10 ? 1 : m <= 60 ? 5 : 15;
  return clock(Math.ceil(m / step) * step);
};
const at = (text, time) => text.replace("{time}", time);
const etaText = (eta) => {
  if (!eta) return w.unknown;
  const half = guess(eta.p50), most = guess(eta.p90), about = half === w.moment ? half : at(w.about, half);
  return most === half ? about : w.both.replace("{about}", about).replace("{likely}", at(w.likely, most));
};
const aheadText = (n) => (n > 0 ? form(w.ahead, n) : w.first);

const put = (node, text) => { if (node && node.textContent !== text) node.textContent = text; };
const fill = (name, text) => document.querySelectorAll("[data-c=" + name + "]").forEach((n) => put(n, text));
const show = (id, yes) => { const n = $(id); if (n) n.hidden = !yes; };
const note = (text) => { const n = $("net"); if (n) { put(n, text); n.hidden = !text; } };

// The title changes at most once in 15 s, whatever it has to say.
const title = (text) => {
  wanted = text;
  if (titleTimer || document.title === text) return;
  const set = () => { titleTimer = 0; if (document.title !== wanted) { document.title = wanted; titled = Date.now(); } };
  const wait = titled + 15000 - Date.now();
  if (wait <= 0) set(); else titleTimer = setTimeout(set, wait);
};
const headline = () => {
  const words = w.states[state];
  if (!words) return;
  const number = LINE.includes(state) && shown > 0 ? "(#" + num(shown) + ") " : "";
  title(number + words[0] + (d.site ? " — " + d.site : ""));
};
const say = (text) => { if (text !== said) { said = text; put($("say"), text); } saidAt = Date.now(); };
const alertOnce = (text) => put($("alert"), text);

// An address with a fragment must be reloaded: replacing it by itself would only scroll.
const go = (url) => {
  going = true;
  clearTimeout(timer);
  clearInterval(tick);
  if (url || d.unsafe || !location.hash) return location.replace(url || d.go);
  const [here] = location.href.split("#");
  if (new URL(d.go, here).href === here) location.reload(); else location.replace(d.go + location.hash);
};
const local = (url) => typeof url === "string" && /^\/(?![\/\\])/.test(url);
const ms = (t) => (typeof t === "number" ? t : Date.parse(t));

// A cache that ignores `no-store` shows an old page: go round it once.
const checkAge = (now) => {
  if (!first || !d.now || !(now > 0)) return false;
  first = false;
  if (now - d.now - (performance.now() - born) < 30000) return false;
  const key = "corvus-fresh", last = make(() => +sessionStorage.getItem(key), Date.now());
  if (Date.now() - last < 300000) { note(w.say_stale); return false; }
  make(() => sessionStorage.setItem(key, String(Date.now())), 0);
  go(d.go + (d.go.includes("?") ? "&" : "?") + "__wr=t" + Date.now());
  return true;
};

const again = (seconds) => {
  clearTimeout(timer);
  const base = document.hidden ? Math.max(60, seconds) : seconds;
  timer = setTimeout(ask, base * 1000 * (0.9 + Math.random() * 0.2));
};
const trouble = (text, seconds) => {
  errors += 1;
  if (text) note(text);
  again(Math.min(60, Math.max(seconds || 0, Math.max(poll, 5) * Math.pow(2, errors - 1))));
};

const ask = () => {
  clearTimeout(timer);
  if (busy || going || !d.status) return;
  busy = true;
  lastPoll = Date.now();
  const stop = new AbortController(), late = setTimeout(() => stop.abort(), 20000);
  const url = d.status + (d.status.includes("?") ? "&" : "?") + "shown=" + shown;
  fetch(url, { credentials: "same-origin", cache: "no-store", headers: { Accept: "application/json" }, signal: stop.signal })
    .then((r) => r.json().catch(() => ({})).then((j) => { busy = false; answer(r.status, j, +r.headers.get("Retry-After") || 0); }))
    .catch(() => { busy = false; trouble(w.say_offline); })
    .then(() => clearTimeout(late));
};

const answer = (code, j, rest) => {
  if (going || checkAge(ms(j.server_time))) return;
  const s = j.state;
  if (code === 429 && !LINE.includes(s) && s !== "granted" && !j.error && s !== "banned") return trouble("", rest || 10);
  if (s === "busy" || s === "store_down") return trouble(w.say_busy, rest);
  if (!s && !j.error) return trouble(w.say_offline, rest);
  if (errors) { errors = 0; note(""); }
  if (j.poll_after > 0) poll = j.poll_after;
  if (LINE.includes(s)) { enterLine(s); line(j); again(poll); }
  else if (s === "granted") { granted(j); again(poll); }
  else if (GONE.includes(s)) gone(j);
  // Another tab has left the line: joining it again is for the visitor to say.
  else if (s === "none") { j.state = "left"; gone(j); }
  else go();
};

// Shows the part of the page that belongs to a state; a page that has no such part is loaded anew.
const become = (s) => {
  if (state === s) return true;
  if (!$("line") && !LINE.includes(s)) { go(); return false; }
  state = s;
  document.body.dataset.state = s;
  const words = w.states[s];
  put($("h"), words[1]);
  put($("lead"), words[2]);
  show("line", LINE.includes(s));
  show("turn", s === "granted");
  show("gone", GONE.includes(s));
  headline();
  return true;
};
const enterLine = (s) => {
  if (state === s) return;
  if (state === "granted") { clearInterval(tick); grantedAt = 0; alertOnce(""); }
  become(s);
  saidAt = -1e9;
};

const line = (j) => {
  if (prefs.paused) return;
  const old = shown, place = j.position || 0, before = ahead;
  ahead = j.ahead || 0;
  shown = place;
  show("place", place > 0);
  fill("position", num(place));
  fill("ahead", num(ahead));
  fill("ahead_text", aheadText(ahead));
  if (j.waiting) fill("waiting", num(j.waiting));
  fill("eta", etaText(j.eta));
  if (old && place > old) { put($("why"), w[j.reason] || ""); show("why", !!w[j.reason]); }
  else if (place < old) show("why", false);
  headline();
  price(j);
  const b = j.eta ? BUCKETS.findIndex((x) => j.eta.p50 < x) : -2;
  const mile = MILES.some((m) => before > m && ahead <= m);
  const past = Date.now() - saidAt;
  const risen = old && place > old && w[j.reason] ? " " + w[j.reason] : "";
  if (mile || past >= 60000 || (b !== bucket && past >= 15000)) {
    bucket = b;
    const lead = place > 0 ? at2(place) + " " + aheadText(ahead) : w.states[state][1];
    say(lead + " " + at(w.say_wait, etaText(j.eta)) + risen);
  }
};
// The offer in the address holds ten minutes, so each answer brings a new one.
const price = (j) => {
  const to = /^(https?:\/\/|\/(?![\/\\]))/i.test(j.skip_url) ? j.skip_url : "", card = $("skip");
  if (to && d.skip) document.querySelectorAll("a").forEach((a) => { if (a.getAttribute("href") === d.skip) a.href = to; });
  if (to) d.skip = to;
  show("skip", !!to);
  if (!to) return;
  const money = make(() => new Intl.NumberFormat(w.tag, { style: "currency", currency: j.skip_currency }).format(j.skip_cost), j.skip_cost + " " + j.skip_currency);
  fill("skip_cost", money);
  if (card) { put($("buy"), card.dataset.buy.replace("{price}", money)); $("buy").href = to; }
};
const at2 = (place) => w.say_place.replace("{count}", num(place));

const granted = (j) => {
  if (!become("granted")) return;
  if (j.claim_s > 0) claimEnd = Date.now() + j.claim_s * 1000;
  if (grantedAt) return;
  grantedAt = Date.now();
  warned = false;
  say("");
  alertOnce(w.states.granted[1] + ". " + at(w.claim, span(j.claim_s)));
  if (prefs.sound) beep();
  if (prefs.notify) make(() => new Notification(w.states.granted[1], { body: d.site }), 0);
  countDown();
  tick = setInterval(countDown, 1000);
};
const countDown = () => {
  const now = Date.now(), left = (claimEnd - now) / 1000, total = Math.max(d.claim || 60, 40);
  put($("claim"), at(w.claim, span(left > 20 ? Math.ceil(left / 10) * 10 : left > 10 ? 20 : 10)));
  show("soon", prefs.auto);
  const warn = left <= Math.min(60, Math.max(20, total / 2));
  show("warn", warn);
  if (warn && !warned) { warned = true; alertOnce(w.say_warn); }
  if (!warn) warned = false;
  // Not under the hands of somebody who is using the page; but never so late that the place is lost.
  const due = Math.min(Math.max(grantedAt + 3000, touched + 10000), claimEnd - 3000);
  if (prefs.auto && now >= due) go();
};
const gone = (j) => {
  clearTimeout(timer);
  clearInterval(tick);
  const rejoin = $("rejoin");
  if (rejoin && local(j.rejoin_url)) {
    // The page knows where its visitor was going; a status answer does not.
    const next = new URL(rejoin.action, location.href).searchParams.get("next"), to = new URL(j.rejoin_url, location.href);
    if (next && !to.searchParams.has("next")) to.searchParams.set("next", next);
    rejoin.action = to.pathname + to.search;
  }
  if (!become(j.state)) return;
  const since = ms(j.since), now = ms(j.server_time) || Date.now();
  if (j.state === "missed" && since > 0 && now >= since) { put($("since"), at(w.since, span((now - since) / 1000))); show("since", true); }
  say("");
  alertOnce(w.states[j.state][1] + ". " + w.states[j.state][2]);
};

const beep = () => make(() => {
  const gain = audio.createGain();
  gain.connect(audio.destination);
  gain.gain.value = 0.15;
  [660, 880].forEach((hz, i) => {
    const tone = audio.createOscillator();
    tone.frequency.value = hz;
    tone.connect(gain);
    tone.start(audio.currentTime + i * 0.25);
    tone.stop(audio.currentTime + i * 0.25 + 0.2);
  });
}, 0);

// Controls.
const box = (id, on) => { const n = $(id); if (n) { n.checked = !!prefs[id]; n.addEventListener("change", () => { prefs[id] = n.checked; on(n); }); } };
const wake = () => { audio = audio || make(() => new AudioContext(), null); if (audio) audio.resume(); };
box("auto", keep);
box("sound", (n) => { keep(); if (n.checked) { wake(); beep(); } });
box("notify", (n) => {
  const refuse = () => { n.checked = prefs.notify = false; note(w.say_no_notice); keep(); };
  if (!n.checked) return keep();
  if (!("Notification" in window)) return refuse();
  Notification.requestPermission().then((p) => (p === "granted" ? keep() : refuse()), refuse);
});
const pause = $("pause");
if (pause) pause.addEventListener("change", () => { prefs.paused = pause.checked; if (!pause.checked) ask(); });
delete prefs.paused;
["keydown", "pointerdown", "touchstart", "focusin", "input", "toggle"].forEach((kind) =>
  document.addEventListener(kind, (e) => { if (e.target !== document) touched = Date.now(); if (prefs.sound && e.isTrusted && kind === "pointerdown") wake(); }, { capture: true, passive: true }));
const check = $("check");
if (check && d.status) check.addEventListener("click", (e) => {
  if (e.ctrlKey || e.metaKey || e.shiftKey) return;
  e.preventDefault();
  saidAt = -1e9;
  said = "";
  if (Date.now() - lastPoll > 1000) ask(); else again(1);
});
const extend = $("extend");
if (extend) extend.addEventListener("submit", (e) => {
  e.preventDefault();
  fetch(extend.getAttribute("action"), { method: "POST", credentials: "same-origin", headers: { Accept: "application/json" } })
    .then((r) => r.json())
    .then((j) => {
      if (j.claim_s > 0) { claimEnd = Date.now() + j.claim_s * 1000; alertOnce(at(w.claim, span(j.claim_s))); countDown(); }
      if (j.extend_url === "") extend.hidden = true;
    })
    .catch(() => note(w.say_offline));
});
const enter = $("enter");
if (enter) enter.addEventListener("click", (e) => { if (!e.ctrlKey && !e.metaKey && !e.shiftKey) { e.preventDefault(); go(); } });
document.addEventListener("click", (e) => { const a = e.target.closest && e.target.closest("a[href]"); if (a && !e.defaultPrevented) going = true; });
document.addEventListener("submit", (e) => { if (!e.defaultPrevented) going = true; });
addEventListener("pagehide", () => {
  if (!going && d.beacon && (LINE.includes(state) || state === "granted")) navigator.sendBeacon(d.beacon);
});
addEventListener("pageshow", (e) => { if (e.persisted) { going = busy = false; ask(); } });
document.addEventListener("visibilitychange", () => {
  if (!timer || going || !d.status) return;
  if (document.hidden) again(60); else if (Date.now() - lastPoll > 2000) ask(); else again(2);
});

show("opts", !!(d.status && !GONE.includes(state)) || d.retry > 0);
if (d.retry > 0) setTimeout(() => { const n = $("auto"); if (!n || n.checked) go(); }, d.retry * 1000 * (1 + Math.random() * 0.2));
if (d.status && state === "granted") { state = ""; granted({ claim_s: d.claim }); again(poll); }
else if (d.status && LINE.includes(state)) again(document.hidden ? poll : Math.min(poll, 2));
})();
