/** The page of a worker or a table server: its topology, tables and live queries. All data comes from this server. */

import { Connection, parse as parsed, stringify } from "./client.js";
import { card, dim, make, number, shown, span } from "./elements.js";
import { List } from "./list.js";
import { Picture } from "./picture.js";
import { showLetters } from "./records.js";
import { showTable, showTables } from "./tables.js";

const POLL_MS = 2_000;
const BEAT_MS = 2_500; // of a poll; without an answer the server is away
const ANSWER_MS = 60_000; // of other requests, such as a trace
const base = new URL(".", location.href).href.replace(/\/$/, "");
const $ = (id) => document.getElementById(id);
const encode = encodeURIComponent;

let token = sessionStorage.getItem("eddy-token");
let topology = null;
let figures = new Map();
let connection = null;
let leave = () => {};
let comeBack = () => {};

class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Ask the server. Raises Refusal for an answer that is an error, another one where there is none within `ms`. */
async function ask(path, { parse = "json", also = [], ms = ANSWER_MS } = {}) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const end = new AbortController();
  const timer = setTimeout(() => end.abort(), ms);
  asking.add(end);
  let answer;
  let text;
  try {
    answer = await fetch(`${base}/${path}`, { headers, cache: "no-store", signal: end.signal });
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
    // it is text
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
    connection?.drop();
    for (const each of asking) each.abort();
  }
  $("away").hidden = !now;
  $("away").textContent = now ? "The server does not answer. Trying again; what you see may be old." : "";
  if (now) status("bad", "away");
  else {
    connection?.retry();
    if (topology === null || stuck) show();
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
    connection?.close();
    connection = null;
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

/** The rows a second of each step, between two answers of the server. */
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
  const chosen = make("section", { class: "card", "aria-live": "polite" });
  const now = card();
  const trouble = card();
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
  main.replaceChildren(make("h1", { class: "unseen" }, `Topology of ${topology.application}`), make("div", { class: "columns" }, make("div", {}, picture.element, text), make("div", {}, now, chosen, trouble)));
  const draw = () => {
    rates.read();
    picture.update((step) => ({ waiting: lagOf(step.topic) > 0, held: held(step.name) > 0 }));
    drawFigures(now);
    drawTrouble(trouble);
    drawChosen();
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
      ...(figures.get("lag_offsets") ?? []).map(({ labels, value }) => [`lag of ${labels.topic}`, number(value)]),
      ...(figures.get("views_lag_offsets") ?? []).map(({ labels, value }) => [`unread of table ${labels.table}`, number(value)]),
    ])),
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

// Live queries

async function showQueries(main) {
  const { queries = [] } = await ask("v1/queries", { also: [404] });
  main.replaceChildren(
    make("h1", {}, "Live queries"),
    queries.length ? "" : dim("This application has no named queries."),
    ...queries.map((query) => card(make("h2", {}, query.name), query.description ? make("p", {}, query.description) : "", argumentForm(query, {}))),
  );
}

function argumentForm(query, given) {
  const inputs = query.arguments.map(({ name, type, required, default: usual }) => {
    const value = given[name] ?? (required || usual == null ? "" : shown(usual));
    return make("input", { name, value, id: `argument-${query.name}-${name}`, required: required ? "" : null, placeholder: type });
  });
  const form = make("form", {}, ...inputs.map((input) => make("label", { for: input.id }, input.name, input)), make("button", {}, "Show live"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const set = new URLSearchParams(inputs.filter((input) => input.value !== "").map((input) => [input.name, input.value]));
    const hash = `#/queries/${encode(query.name)}?${set}`;
    if (location.hash === hash) show();
    else location.hash = hash;
  });
  return form;
}

/** An argument's text as its type says: text stands for itself, all else is JSON. */
function valueOf(text, type = "") {
  if (/^str\b/.test(type) && !(text === "null" && /None/.test(type))) return text;
  try {
    return parsed(text);
  } catch {
    return text;
  }
}

async function showQuery(main, name, parameters) {
  const query = (await ask("v1/queries")).queries.find((each) => each.name === name);
  if (!main.isConnected) return; // another page is shown by now
  if (query === undefined) throw new Refusal(404, `There is no query '${name}'.`);
  const given = Object.fromEntries(parameters);
  const types = Object.fromEntries(query.arguments.map((each) => [each.name, each.type]));
  const lacking = query.arguments.some((each) => each.required && !(each.name in given));
  const place = card(dim(lacking ? "Fill in the arguments." : "Connecting …"));
  const note = make("p", { class: "bar", role: "status" });
  main.replaceChildren(make("h1", {}, make("a", { href: "#/queries" }, "Live queries"), ` / ${name}`), query.arguments.length ? argumentForm(query, given) : "", place, note);
  if (lacking) return;
  const values = Object.fromEntries(Object.entries(given).map(([each, text]) => [each, valueOf(text, types[each])]));
  connection ??= new Connection(base, { token });
  const view = connection.live(name, values);
  const tree = new Tree(view, name);
  let frame = 0;
  const draw = () => {
    frame = 0;
    const says = { complete: "live", unknown: "a table is read anew", offline: "away; trying again" };
    if (view.shape && !view.error) {
      tree.take();
      if (place.firstChild !== tree.element) place.replaceChildren(tree.element);
      tree.list.paint();
    } else if (view.error) place.replaceChildren(make("p", { class: "error" }, view.error.message));
    note.replaceChildren(span(`dot ${view.state === "complete" ? "good" : "bad"}`, view.error ? "ended" : (says[view.state] ?? view.state)),
      view.version ? make("span", {}, view.version.exact ? "exact" : "committed, not exact") : "", make("span", {}, tree.summary));
  };
  const stop = view.subscribe(() => (frame ||= requestAnimationFrame(draw)));
  leave = () => {
    stop();
    view.close();
  };
}

/** The heading of a nest, where a row has several. */
class Nest {
  constructor(nestName, below, level) {
    Object.assign(this, { nestName, below, level });
  }
}

const listOf = (value) => (Array.isArray(value) ? value : [value]);
const TITLES = ["name", "title", "label", "text", "value"];

/** The rows of a view as a list that expands: a row with one nest has its rows below, with several each nest. */
class Tree {
  #open = new Set();
  #items = [];
  #seen = new Map();
  summary = "";

  constructor(view, label) {
    this.view = view;
    this.list = new List({ label, role: "tree", draw: (element, index) => this.#draw(element, this.#items[index]), act: (what, index) => this.#act(what, index) });
    this.value = make("p", { class: "number-now" });
    this.element = this.list.element;
  }

  /** Take the rows as they are now. */
  take() {
    const { rows } = this.view;
    if (!Array.isArray(rows) && (rows === null || typeof rows !== "object")) {
      this.element = this.value;
      this.value.textContent = rows === null ? "no row" : shown(rows);
      this.summary = "";
      return;
    }
    this.element = this.list.element;
    const top = listOf(rows);
    this.summary = `${number(top.length)} ${top.length === 1 ? "row" : "rows"} at the top`;
    this.#items = this.#flat(top);
    this.list.count = this.#items.length;
  }

  #levelOf(level) {
    const { shape } = this.view;
    while (shape[level].pluck) level = shape[level].nests[shape[level].pluck];
    return level;
  }

  #flat(top) {
    const items = [];
    const todo = [{ rows: top, next: 0, level: this.#levelOf(0), depth: 0, path: "" }];
    while (todo.length) {
      const turn = todo[todo.length - 1];
      if (turn.next === turn.rows.length) {
        todo.pop();
        continue;
      }
      const item = this.#item(turn.rows[turn.next++], turn);
      items.push(item);
      if (item.below && this.#open.has(item.key)) todo.push({ rows: item.below, next: 0, level: item.level, depth: turn.depth + 1, path: item.key });
    }
    return items;
  }

  #item(row, { level, depth, path }) {
    if (row instanceof Nest) return { ...row, key: `${path}/${row.nestName}`, depth, below: row.below.length ? row.below : null };
    const { shape } = this.view;
    const { nests = {}, key = [] } = shape[level];
    const keys = key.filter((column) => column in row);
    const own = `${path}/${stringify(keys.length ? keys.map((column) => row[column]) : row)}`;
    const found = Object.entries(nests).filter(([name]) => row[name] !== null && typeof row[name] === "object");
    let below = null;
    let belowLevel = level;
    if (found.length === 1 && Object.keys(nests).length === 1) {
      const [[name, next]] = found;
      below = listOf(row[name]);
      belowLevel = this.#levelOf(next);
    } else if (found.length)
      below = found.map(([name, next]) => new Nest(name, listOf(row[name]), this.#levelOf(next)));
    return { row, key: own, depth, below: below?.length ? below : null, level: belowLevel, nests };
  }

  #draw(element, item) {
    if (item === undefined) return;
    const isOpen = this.#open.has(item.key);
    element.style.paddingLeft = `${0.8 + Math.min(item.depth, 40) * 1.1}em`;
    element.setAttribute("aria-level", item.depth + 1);
    if (item.below) element.setAttribute("aria-expanded", isOpen);
    else element.removeAttribute("aria-expanded");
    const twist = make("span", { class: "twist", "aria-hidden": "true" }, item.below ? (isOpen ? "▾" : "▸") : "");
    if (item.nestName !== undefined) element.replaceChildren(twist, span("dim", `${item.nestName} (${number(item.below?.length ?? 0)})`));
    else element.replaceChildren(twist, ...this.#cells(item));
    const text = element.lastChild.textContent + element.children[1].textContent;
    const old = this.#seen.get(item.key);
    if (old !== undefined && old !== text && !element.classList.contains("fresh")) {
      element.classList.add("fresh");
      setTimeout(() => element.classList.remove("fresh"), 1_700);
    }
    this.#seen.set(item.key, text);
    if (this.#seen.size > 5_000) this.#seen.clear();
  }

  #cells({ row, nests, below }) {
    const columns = Object.keys(row).filter((column) => !(column in nests) || row[column] === null || typeof row[column] !== "object");
    const title = TITLES.find((column) => columns.includes(column)) ?? columns.find((column) => column !== "$cycle");
    const rest = columns.filter((column) => column !== title && column !== "$cycle").map((column) => `${column}: ${shown(row[column])}`);
    const count = below && !(below[0] instanceof Nest) ? span("dim", number(below.length)) : "";
    return [make("span", {}, title === undefined ? "" : shown(row[title])), row.$cycle ? span("error", "↺ leads back to a row above") : "", count, span("value", rest.join(" · "))];
  }

  #act(what, index) {
    const item = this.#items[index];
    if (item === undefined) return;
    const isOpen = this.#open.has(item.key);
    if (item.below && (what === "open" || what === "twist" || (what === "expand") !== isOpen)) {
      if (isOpen) this.#open.delete(item.key);
      else this.#open.add(item.key);
      this.take();
    } else if (what === "expand" && isOpen) this.list.go(index + 1);
    else if (what === "collapse") {
      let above = index;
      while (above > 0 && this.#items[above].depth >= item.depth) above--;
      this.list.go(above);
    }
  }
}

// Pages

/** A page of another file: it gets what it needs of this one. */
function onPage(show) {
  return (main, ...rest) => show(main, { ask, save, figure, follow: (each, back = () => {}) => ([afterPoll, comeBack] = [each, back]) }, ...rest);
}

const PAGES = [
  [/^\/$/, showTopology], [/^\/tables$/, onPage(showTables)], [/^\/tables\/([^/]+)$/, onPage(showTable)], [/^\/queries$/, showQueries],
  [/^\/queries\/([^/]+)$/, showQuery], [/^\/letters$/, onPage(showLetters)],
];

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
  const main = make("div");
  try {
    if (topology === null) {
      topology = await ask("topology");
      $("application").textContent = topology.application;
      document.title = `${topology.application} · eddy`;
    }
    if (mine !== turn) return;
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
show();
poll();
