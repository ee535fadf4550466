/** The rows of a live query as a tree that expands, with marks at rows that are new, moved or changed. */

import { stringify } from "./client.js";
import { make, number, shown, span } from "./elements.js";
import { List } from "./list.js";

const MARK_MS = 4_000;

/** The heading of a nest, where a row has several nests. */
class Nest {
  constructor(nestName, below, level) {
    Object.assign(this, { nestName, below, level });
  }
}

/** The columns of a row, without its nests that have rows. */
const columnsOf = (row, nests) => Object.keys(row).filter((column) => !(column in nests) || row[column] === null || typeof row[column] !== "object");

/** All that a row shows: its columns, and the number of the rows below it. */
const textOf = ({ row, nests, below }) => stringify([columnsOf(row, nests).map((column) => row[column]), below?.length]);

const listOf = (value) => (Array.isArray(value) ? value : [value]);
const TITLES = ["name", "title", "label", "text", "value"];

/** The rows of a view as a list that expands: a row has the rows of its nest below it or, with several nests, the nests. */
export class Tree {
  #open = new Set();
  #met = new Set(); // keys of rows that have opened by themselves
  #items = [];
  #isShown = false;
  #marks = new Map(); // by key: a word, and the time until which it is shown
  summary = "";

  /** The first `levels` levels open by themselves. */
  constructor(view, label, levels = 0) {
    Object.assign(this, { view, levels });
    this.list = new List({ label, role: "tree", draw: (element, index) => this.#draw(element, this.#items[index]), act: (what, index) => this.#act(what, index) });
    this.value = make("p", { class: "number-now" });
    this.element = this.list.element;
  }

  /** Take the rows as they are after a patch, and mark what it has changed. */
  follow() {
    const former = new Map(this.#items.map((item) => [item.key, item]));
    this.take();
    if (this.#isShown) this.#mark(former);
    this.#isShown = true;
  }

  #mark(former) {
    const owns = new Set([...former.values()].map((item) => item.own));
    const until = performance.now() + MARK_MS;
    let found = false;
    for (const item of this.#items) {
      const old = former.get(item.key);
      if (old?.row === item.row && old?.below?.length === item.below?.length) continue;
      if (old === undefined && item.path && !former.has(item.path)) continue; // the row above has a mark
      const word = old === undefined ? (owns.has(item.own) ? "moved here" : "new") : "changed";
      if (word === "changed" && item.nestName === undefined && textOf(old) === textOf(item)) continue;
      this.#marks.set(item.key, { word, until });
      found = true;
    }
    if (found) setTimeout(() => this.#unmark(), MARK_MS + 50);
  }

  #unmark() {
    const now = performance.now();
    for (const [key, { until }] of this.#marks) if (until <= now) this.#marks.delete(key);
    this.list.refresh();
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
      if (item.depth < this.levels && item.below && !this.#met.has(item.key)) {
        this.#met.add(item.key);
        this.#open.add(item.key);
      }
      if (item.below && this.#open.has(item.key)) todo.push({ rows: item.below, next: 0, level: item.level, depth: turn.depth + 1, path: item.key });
    }
    return items;
  }

  #item(row, { level, depth, path }) {
    if (row instanceof Nest) return { ...row, key: `${path}/${row.nestName}`, own: `${path}/${row.nestName}`, path, depth, below: row.below.length ? row.below : null };
    const { shape } = this.view;
    const { nests = {}, key = [] } = shape[level];
    const keys = key.filter((column) => column in row);
    const own = stringify(keys.length ? keys.map((column) => row[column]) : row);
    const found = Object.entries(nests).filter(([name]) => row[name] !== null && typeof row[name] === "object");
    let below = null;
    let belowLevel = level;
    if (found.length === 1 && Object.keys(nests).length === 1) {
      const [[name, next]] = found;
      below = listOf(row[name]);
      belowLevel = this.#levelOf(next);
    } else if (found.length)
      below = found.map(([name, next]) => new Nest(name, listOf(row[name]), this.#levelOf(next)));
    return { row, key: `${path}/${own}`, own, path, depth, below: below?.length ? below : null, level: belowLevel, nests };
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
    const mark = this.#marks.get(item.key);
    element.classList.toggle("marked", mark !== undefined);
    if (mark) element.append(span("dim", mark.word));
  }

  #cells({ row, nests, below }) {
    const columns = columnsOf(row, nests);
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
