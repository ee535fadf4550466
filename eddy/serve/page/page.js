/** The page of a worker or a table server: its topology, tables and live queries. All data comes from this server. */

import { Connection, parse as parsed } from "./client.js";
import { card, dim, make, number } from "./elements.js";
import { Picture } from "./picture.js";
import { showQueries, showQuery } from "./queries.js";
import { showLetters } from "./records.js";
import { showSql } from "./sql.js";
import { showTable, showTables } from "./tables.js";

const POLL_MS = 2_000;
const FIRST_POLL_MS = 1_000; // at the latest: the page itself goes before it
const BEAT_MS = 2_500; // the time limit of a poll; without an answer the server is away
const MANY = 8; // lags
const ANSWER_MS = 60_000; // the time limit of other requests, such as a trace
const base = new URL(".", location.href).href.replace(/\/$/, "");
const $ = (id) => document.getElementById(id);

let token = sessionStorage.getItem("eddy-token");
let figures = new Map();
let connections = []; // two connections to the server: for named queries, and for texts
let leave = () => {};
let comeBack = () => {};

class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Ask the server. Throws a Refusal if the answer is an error, and another error if there is no answer within `ms`. */
async function ask(path, { parse = "json", also = [], ms = ANSWER_MS, body } = {}) {
  const headers = { ...(token && { Authorization: `Bearer ${token}` }), ...(body && { "Content-Type": "application/json" }) };
  const end = new AbortController();
  const timer = setTimeout(() => end.abort(), ms);
  asking.add(end);
  let answer;
  let text;
  try {
    answer = await fetch(`${base}/${path}`, { headers, cache: "no-store", signal: end.signal, ...(body && { method: "POST", body: JSON.stringify(body) }) });
    text = await answer.text();
  } catch (error) {
    away(true);
    throw error;
  } finally {
    clearTimeout(timer);
    asking.delete(end);
  }
  away(false);
  if (answer.ok || also.includes(answer.status)) return parse === "json" ? parsed(text) : text;
  if (answer.status === 401) askForToken(!!headers.Authorization);
  let message = text;
  try {
    message = JSON.parse(text).error ?? text;
  } catch {
    // the answer is plain text
  }
  throw new Refusal(answer.status, message.trim() || answer.statusText);
}

/** Let the browser save a file of the server. With a token it is fetched whole first, since a link cannot send one. */
async function save(path, name) {
  const link = make("a", { href: `${base}/${path}`, download: name });
  if (token) {
    const answer = await fetch(link.href, { headers: { Authorization: `Bearer ${token}` }, cache: "no-store" });
    if (!answer.ok) throw new Refusal(answer.status, (await answer.json()).error);
    link.href = URL.createObjectURL(await answer.blob());
    setTimeout(() => URL.revokeObjectURL(link.href), ANSWER_MS);
  }
  link.click();
}

const asking = new Set();
let isAway = false;
function away(now) {
  if (now === isAway) return;
  isAway = now;
  if (now) {
    for (const each of connections) each?.drop();
    for (const each of asking) each.abort();
  }
  $("away").hidden = !now;
  $("away").textContent = now ? "The server does not answer. Trying again; what you see may be old." : "";
  if (now) status("bad", "away");
  else {
    for (const each of connections) each?.retry();
    if (stuck) show();
    else comeBack();
    poll();
  }
}

function status(kind, text) {
  $("status").className = kind;
  $("status").textContent = text;
}

function askForToken(isRefused) {
  const said = isRefused ? "This token was refused; another one is needed" : "This server wants a token";
  if ($("token")) {
    // it may be typed just now
    if (isRefused) document.querySelector("label[for=token]").textContent = said;
    return;
  }
  const input = make("input", { type: "password", autocomplete: "off", id: "token" });
  const form = make("form", {}, make("label", { for: "token" }, said), input, make("button", {}, "Show it"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    token = input.value.trim();
    sessionStorage.setItem("eddy-token", token);
    for (const each of connections) each?.close();
    connections = [];
    show();
    poll();
  });
  $("main").replaceChildren(card(form));
  input.focus();
}

// Figures

function parseFigures(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const match = /^eddy_(\w+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g))
      labels[name] = value.replace(/\\(.)/g, (_, of) => (of === "n" ? "\n" : of));
    if (!found.has(match[1])) found.set(match[1], []);
    found.get(match[1]).push({ labels, value: Number(match[3]) });
  }
  return found;
}

const figure = (name) => figures.get(name)?.[0]?.value;
const yes = (name) => figures.has(name) ? (figure(name) ? "yes" : "no") : undefined;
const count = (name) => number(figure(name));

const held = (step) => (figures.get("held_partitions") ?? figures.get("views_held_partitions") ?? []).reduce((sum, { labels, value }) => sum + (labels.step === (step ?? labels.step) ? value : 0), 0);

let health = null;
let afterPoll = () => {};
let polls = 0;
async function poll() {
  const mine = ++polls;
  try {
    const [ready, text] = await Promise.all([ask("readyz", { also: [503], ms: BEAT_MS }), ask("metrics", { parse: "text", ms: BEAT_MS })]);
    describe().catch(() => {}); // the page of the topology says it
    health = ready;
    figures = parseFigures(text);
    const is = ready.state ?? (ready.ready ? "ready" : "starting");
    if (ready.reason) status("bad", `${is}: ${ready.reason}`);
    else if (held()) status("held", `${is.toLowerCase()}; held without a finite answer: ${held()}`);
    else status("good", is.toLowerCase());
    await afterPoll();
  } catch {
    // it is said by `away`, or asked for a token
  }
  if (mine === polls) setTimeout(() => mine === polls && poll(), document.hidden ? 5 * POLL_MS : POLL_MS);
}

// Topology

function rowsOf(pairs) {
  return pairs.filter(([, value]) => value != null && value !== "–").flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]);
}

function lagOf(topic) {
  return figures.get("lag_offsets")?.find(({ labels }) => labels.topic === topic)?.value;
}

/** The rows per second of each step, between two answers of the server. */
class Rates {
  #before = new Map();
  #at = performance.now();
  of = new Map();

  read() {
    const now = performance.now();
    const rows = new Map((figures.get("step_rows_total") ?? []).map(({ labels, value }) => [labels.step, value]));
    const seconds = (now - this.#at) / 1_000;
    if (seconds < 1) return;
    this.of = new Map([...rows].filter(([step]) => this.#before.has(step)).map(([step, value]) => [step, Math.max(0, value - this.#before.get(step)) / seconds]));
    [this.#before, this.#at] = [rows, now];
  }
}

const shownRate = (rate) => (rate === undefined ? "" : rate === 0 ? "no rows now" : `${number(rate < 10 ? Number(rate.toPrecision(1)) : Math.round(rate))} rows/s`);
const secondsOf = (step) => figures.get("step_seconds_total")?.find(({ labels }) => labels.step === step)?.value;
const rowsTaken = (step) => figures.get("step_rows_total")?.find(({ labels }) => labels.step === step)?.value;

async function showTopology(main) {
  const topology = await describe();
  const chosen = make("section", { class: "card", "aria-live": "polite" });
  const now = card();
  const trouble = card();
  const workers = make("section", { class: "card", hidden: "" });
  const text = make("details", { class: "card" }, make("summary", {}, "As text"), make("pre", {}, topology.text));
  const rates = new Rates();
  let at = null;
  const drawChosen = () => at && drawStep(chosen, at, rates.of.get(at.name));
  const picture = new Picture(topology.steps, {
    choose: (number) => {
      at = topology.steps[number];
      drawChosen();
    },
    tell: (step) => (step.form === "topic" && lagOf(step.topic) > 0 ? `lag ${number(lagOf(step.topic))}` : shownRate(rates.of.get(step.name))),
  });
  picture.element.className = "card picture";
  main.replaceChildren(make("h1", { class: "unseen" }, `Topology of ${topology.application}`), make("div", { class: "columns" }, make("div", {}, picture.element, text), make("div", {}, now, workers, chosen, trouble)));
  const draw = () => {
    rates.read();
    picture.update((step) => ({ waiting: lagOf(step.topic) > 0, held: held(step.name) > 0 }));
    drawFigures(now);
    drawTrouble(trouble);
    drawChosen();
    if (figures.has("epochs_total")) drawWorkers(workers).catch(() => {}); // it is said by `away`
  };
  await picture.lay();
  if (!main.isConnected) return;
  draw();
  const recursion = topology.steps.findIndex((step) => step.form === "recursion");
  picture.show(Math.max(recursion, 0));
  afterPoll = draw;
}

function drawStep(place, step, rate) {
  place.replaceChildren(
    make("h2", {}, { topic: "Topic", recursion: "Recursion", variable: "Rows of the recursion", exchange: "Exchange" }[step.form] ?? "Step"),
    make("dl", { class: "left" }, rowsOf([
      ["name", step.name], ["topic", step.topic], ["lag", lagOf(step.topic)], ["rows taken", number(rowsTaken(step.name))],
      ["now", shownRate(rate) || undefined], ["seconds of work", number(secondsOf(step.name))], ["inside", step.loop],
      ["stores", step.stores.join(", ") || undefined], ["runs by", step.strategy], ["held partitions", held(step.name) || undefined],
    ])),
  );
}

function drawFigures(place) {
  place.replaceChildren(
    make("h2", {}, figures.has("epochs_total") ? "This worker" : "This table server"),
    make("dl", {}, rowsOf([
      ["state", health?.state],
      ["partitions", count("owned_partitions")],
      ["records in", count("records_total")],
      ["records out", count("written_records_total")],
      ["epochs", count("epochs_total")],
      ["waves of loops", count("waves_total")],
      ["rows round loops", count("loop_rows_total")],
      ["rows in loop topics", count("rows_in_loops")],
      ["all is taken in", yes("quiescent")],
      ["tables are exact", yes("views_exact")],
      ["records read", count("views_records_total")],
      ...lagsOf("lag_offsets", "topic", "lag of"),
      ...lagsOf("views_lag_offsets", "table", "unread of table"),
    ])),
  );
}

/** A line for each lag; if there are many, only for lags that are not 0. */
function lagsOf(figure, label, title) {
  const all = figures.get(figure) ?? [];
  const told = all.length > MANY ? all.filter(({ value }) => value > 0) : all;
  const others = all.length - told.length;
  return [...told.map(({ labels, value }) => [`${title} ${labels[label]}`, number(value)]), ...(others ? [[`${title.split(" ")[0]} of ${others} ${told.length ? "other " : ""}${label}s`, "0"]] : [])];
}

/** All workers of the application, if this worker knows others. */
async function drawWorkers(place) {
  const { workers } = await ask("workers");
  const open = [...place.querySelectorAll("details")].map((each) => each.open);
  place.hidden = workers.length < 2;
  place.replaceChildren(
    make("h2", {}, "Workers"),
    ...workers.map(({ address, member, state, reason, partitions, away_s: away }, index) => make("details", { open: open[index] ? "" : null },
      make("summary", {}, make("span", { class: `dot ${away === null && !reason ? "good" : "bad"}` }, index ? address : "this one"), away === null ? ` worker ${member ?? ""}: ${state.toLowerCase()}, ${partitions.length} partitions, lag ${number(partitions.reduce((sum, { lag }) => sum + lag, 0))}` : ` away for ${Math.round(away)} s`),
      reason ? make("p", { class: "error" }, reason) : "",
      make("dl", {}, rowsOf(partitions.map(({ topic, partition, lag }) => [`${topic} ${partition}`, `lag ${number(lag ?? undefined)}`]))))),
  );
}

function drawTrouble(place) {
  const counts = [
    ["records left out", figure("skipped_records_total")],
    ["rows set aside now", figure("kept_aside_rows")],
    ["rows beyond a limit", figure("cut_rows_total")],
    ["failed attempts", figure("aborts_total")],
    ["left out of tables", figure("views_left_out_total")],
    ["errors of reading", figure("views_errors_total")],
  ].filter(([, value]) => value);
  const told = [...(health?.held ?? []), ...(health?.error ? [health.error] : [])];
  place.replaceChildren(
    make("h2", {}, "Errors and dead letters"),
    counts.length || told.length ? "" : make("p", { class: "dot good" }, "none"),
    counts.length ? make("dl", {}, rowsOf(counts)) : "",
    ...told.map((text) => make("p", { class: "error" }, text)),
    figure("skipped_records_total") ? make("p", {}, make("a", { href: "#/letters" }, "Dead letters")) : "",
  );
}

// Pages

/** A page whose code is in another file; it gets the functions of this file that it needs. */
function onPage(open) {
  const handle = {
    ask, save, figure,
    follow: (each, back = () => {}) => ([afterPoll, comeBack] = [each, back]),
    live: (name, values) => (connections[0] ??= new Connection(base, { token })).live(name, values),
    liveText: (text) => (connections[1] ??= new Connection(base, { token, texts: true })).liveText(text),
    leaving: (end) => (leave = end),
    again: () => show(),
  };
  return (main, ...rest) => open(main, handle, ...rest);
}

const PAGES = [
  [/^\/$/, showTopology], [/^\/tables$/, onPage(showTables)], [/^\/tables\/([^/]+)$/, onPage(showTable)], [/^\/queries$/, onPage(showQueries)],
  [/^\/queries\/([^/]+)$/, onPage(showQuery)], [/^\/letters$/, onPage(showLetters)], [/^\/sql$/, onPage(showSql)],
];

let described = null;
/** The topology, which is requested once. */
function describe() {
  described ??= ask("topology").then(
    (found) => {
      $("application").textContent = found.application;
      document.title = `${found.application} · eddy`;
      return found;
    },
    (error) => {
      described = null;
      throw error;
    },
  );
  return described;
}

let turn = 0;
let stuck = false;
async function show() {
  const mine = ++turn;
  const [path, parameters] = (location.hash.slice(1) || "/").split("?");
  leave();
  leave = afterPoll = comeBack = () => {};
  for (const link of document.querySelectorAll("nav a")) {
    const to = link.hash.slice(1);
    if (to === "/" ? path === "/" : path.startsWith(to)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  stuck = false;
  const main = make("div", {}, mine === 1 ? dim("Loading …") : "");
  try {
    $("main").replaceChildren(main);
    const [pattern, page] = PAGES.find(([each]) => each.test(path)) ?? [/^/, () => Promise.reject(new Refusal(404, "There is no such page."))];
    await page(main, ...pattern.exec(path).slice(1).map(decodeURIComponent), new URLSearchParams(parameters));
  } catch (error) {
    if (mine !== turn || error.status === 401) return;
    stuck = isAway || error.status === 503;
    $("main").replaceChildren(card(make("p", { class: "error" }, isAway ? "The server does not answer." : error.message)));
    if (stuck) setTimeout(() => mine === turn && show(), POLL_MS);
  }
}

document.addEventListener("visibilitychange", () => document.hidden || poll());
addEventListener("hashchange", () => {
  show();
  $("main").focus();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  $("main").focus();
});
Promise.race([show(), new Promise((done) => setTimeout(done, FIRST_POLL_MS))]).then(poll);
