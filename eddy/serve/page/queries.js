/** Live queries: their list, their arguments, and the rows of one. */

import { parse as parsed } from "./client.js";
import { card, dim, make, number, shown, span } from "./elements.js";
import { Tree } from "./tree.js";

const encode = encodeURIComponent;
const LEVELS = "open-levels"; // in the address: no argument can have this name

/** All named queries, and the queries that are open now. */
export async function showQueries(main, page) {
  const { queries = [] } = await page.ask("v1/queries", { also: [404] });
  const open = card();
  const draw = async () => {
    const { queries: found, count } = await page.ask("v1/open-queries");
    open.replaceChildren(make("h2", {}, "Open now"), found.length ? openNow(found) : dim("No live query is open."), count > found.length ? dim(`${number(count - found.length)} more have cost less.`) : "");
  };
  main.replaceChildren(
    make("h1", {}, "Live queries"),
    queries.length ? "" : dim("This application has no named queries."),
    ...queries.map((query) => card(make("h2", {}, query.name), query.description ? make("p", {}, query.description) : "", argumentForm(page, query, {}))),
    open,
  );
  await draw();
  page.follow(draw);
}

/** The queries that are open, with their clients and costs. */
function openNow(queries) {
  const columns = [
    ["clients", ({ clients, readers }) => (clients + readers ? number(clients + readers) : "none now")], ["rows", ({ rows }) => number(rows)], ["memory", ({ bytes }) => sized(bytes)],
    ["to open", ({ opening_s: seconds }) => timed(seconds)], ["cost so far", ({ seconds }) => timed(seconds)],
  ];
  return make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Open queries" }, make("table", {},
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "query"), ...columns.map(([head]) => make("th", { class: "number", scope: "col" }, head)))),
    make("tbody", {}, ...queries.map((query) => make("tr", {}, make("td", {}, query.names.join(", ") || (query.readers ? "in a program" : query.clients ? "without a name" : "read once"), query.is_filtered ? ", over some rows " : " ", make("code", { class: "dim" }, query.text)), ...columns.map(([, told]) => make("td", { class: "number" }, told(query))))))));
}

const timed = (seconds) => (seconds < 1 ? `${number(Number((seconds * 1_000).toPrecision(3)))} ms` : `${number(Number(seconds.toPrecision(3)))} s`);
const sized = (bytes) => (bytes < 1 << 20 ? `${number(Math.ceil(bytes / 1024))} KiB` : `${number(Number((bytes / (1 << 20)).toPrecision(3)))} MiB`);

function argumentForm(page, query, given) {
  const inputs = query.arguments.map(({ name, type, required, default: usual }) => {
    const value = given[name] ?? (required || usual == null ? "" : shown(usual));
    return make("input", { name, value, id: `argument-${query.name}-${name}`, required: required ? "" : null, placeholder: type });
  });
  const form = make("form", {}, ...inputs.map((input) => make("label", { for: input.id }, input.name, input)), make("button", {}, "Show live"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const set = new URLSearchParams(inputs.filter((input) => input.value !== "").map((input) => [input.name, input.value]));
    const hash = `#/queries/${encode(query.name)}?${set}`;
    if (location.hash === hash) page.again();
    else location.hash = hash;
  });
  return form;
}

/** The value of an argument, from its text: a string is the text itself, all other types are JSON. */
function valueOf(text, type = "") {
  if (/^str\b/.test(type) && !(text === "null" && /None/.test(type))) return text;
  try {
    return parsed(text);
  } catch {
    return text;
  }
}

/** The rows of a query. `parameters` of its address: its arguments, and how many levels of its tree are open. */
export async function showQuery(main, page, name, parameters) {
  const query = (await page.ask("v1/queries")).queries.find((each) => each.name === name);
  if (!main.isConnected) return; // another page is shown by now
  if (query === undefined) throw new Error(`There is no query '${name}'.`);
  const { [LEVELS]: levels = 0, ...given } = Object.fromEntries(parameters);
  const types = Object.fromEntries(query.arguments.map((each) => [each.name, each.type]));
  const lacking = query.arguments.some((each) => each.required && !(each.name in given));
  const place = card(dim(lacking ? "Fill in the arguments." : "Connecting …"));
  const note = make("p", { class: "bar", role: "status" });
  main.replaceChildren(make("h1", {}, make("a", { href: "#/queries" }, "Live queries"), ` / ${name}`), query.arguments.length ? argumentForm(page, query, given) : "", place, note);
  if (lacking) return;
  const values = Object.fromEntries(Object.entries(given).map(([each, text]) => [each, valueOf(text, types[each])]));
  page.leaving(followView(page.live(name, values), { name, levels: Number(levels), place, note }));
}

/** Show the rows of a view in `place`, and its state in `note`. Returns a function that ends it. `failed` gets its error. */
export function followView(view, { name, levels = 0, place, note, failed = () => {} }) {
  const tree = new Tree(view, name, levels);
  let frame = 0;
  const draw = () => {
    frame = 0;
    const says = { complete: "live", unknown: "a table is read anew", offline: "away; trying again" };
    if (view.shape && !view.error) {
      tree.follow();
      if (place.firstChild !== tree.element) place.replaceChildren(tree.element);
      tree.list.paint();
    } else if (view.error) {
      place.replaceChildren(make("p", { class: "error" }, view.error.message));
      failed(view.error);
    }
    note.replaceChildren(span(`dot ${view.state === "complete" ? "good" : "bad"}`, view.error ? "ended" : (says[view.state] ?? view.state)),
      view.version ? make("span", {}, view.version.exact ? "exact" : "committed, not exact") : "", make("span", {}, tree.summary));
  };
  const stop = view.subscribe(() => (frame ||= requestAnimationFrame(draw)));
  return () => {
    cancelAnimationFrame(frame);
    stop();
    view.close();
  };
}
