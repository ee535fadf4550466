/** The tables, and the rows of one: by place, from a key on, or by the beginning of their keys. */

import { stringify } from "./client.js";
import { card, dim, make, number, shown, span } from "./elements.js";
import { List } from "./list.js";
import { Rows } from "./rows.js";
import { Why } from "./trace.js";

const encode = encodeURIComponent;
const CELL = 400; // the characters of a value that a row shows
const AGAIN_MS = 1_000;
const short = (value) => {
  const text = shown(value);
  return text.length > CELL ? `${text.slice(0, CELL)}…` : text;
};

/** All tables. `page.ask` asks the server, `page.follow(each, back)` is called again after polls and after an outage. */
export async function showTables(main, page) {
  const draw = async () => {
    const { tables, exact } = await page.ask("v1/tables");
    main.replaceChildren(
      make("h1", {}, "Tables"),
      make("table", {}, make("thead", {}, make("tr", {}, ...["name", "kind", "key", "value"].map((head) => make("th", { scope: "col" }, head)), make("th", { class: "number", scope: "col" }, "rows"))),
        make("tbody", {}, ...tables.map((table) => make("tr", {},
          make("td", {}, make("a", { href: `#/tables/${encode(table.name)}` }, table.name)),
          ...[table.kind, table.key, table.value].map((each) => make("td", {}, each)),
          make("td", { class: "number" }, number(table.rows)))))),
      dim(exact ? "All tables are exactly of one cut." : "The latest records may be part of a transaction."),
    );
  };
  await draw();
  if (!main.isConnected) return;
  page.follow(async () => document.activeElement?.closest("table") || draw());
}

/** The rows of a table. */
export function showTable(main, page, name) {
  const view = new TableView(main, page, name);
  view.open();
  page.follow(() => view.follow(), () => view.comeBack());
}

class TableView {
  #keys; // how keys are written in requests: text, bytes or json
  #typed;
  #seen;

  constructor(main, page, name) {
    Object.assign(this, { main, page, name });
    this.path = `v1/tables/${encode(name)}`;
    this.key = make("input", { id: "key", placeholder: "a key, as text or JSON" });
    this.search = make("input", { id: "search", type: "search", placeholder: "the beginning of a key" });
    this.detail = make("section", { class: "card", "aria-live": "polite" }, dim("Choose a row."));
    this.place = make("span", {});
    this.note = make("span", { role: "status" });
    this.list = new List({
      label: `Rows of ${name}`,
      draw: (element, index) => this.#draw(element, this.rows?.at(index)),
      act: (what, index) => what === "open" && this.#choose(this.rows.at(index)),
      seen: (first, last) => this.#look(first, last),
    });
    const go = make("form", {}, make("label", { for: "key" }, "Go to key"), this.key, make("button", {}, "Go"));
    const find = make("form", { role: "search" }, make("label", { for: "search" }, "Find"), this.search);
    go.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#jump();
    });
    find.addEventListener("submit", (event) => event.preventDefault());
    this.search.addEventListener("input", () => {
      clearTimeout(this.#typed);
      this.#typed = setTimeout(() => this.open(), 200);
    });
    main.replaceChildren(
      make("h1", {}, make("a", { href: "#/tables" }, "Tables"), ` / ${name}`),
      make("div", { class: "tools" }, go, find),
      make("div", { class: "columns" }, make("div", {}, this.list.element, make("p", { class: "bar" }, this.place, this.note)), this.detail),
    );
  }

  /** Show the rows from the first one on. */
  async open() {
    const prefix = this.search.value ? `prefix=${encode(this.search.value)}` : "";
    const rows = (this.rows = new Rows(this.page.ask, `${this.path}?${prefix}`, {
      changed: (shift) => rows === this.rows && this.#changed(shift),
      failed: (error) => rows === this.rows && this.#say(error),
    }));
    this.list.count = 1;
    this.list.go(0);
    this.note.replaceChildren();
    this.place.replaceChildren();
    try {
      this.#keys ??= (await this.page.ask("v1/tables")).tables.find((table) => table.name === this.name)?.keys;
      await rows.load(0);
      if (rows !== this.rows) return;
      this.#changed(0);
      if (!prefix) this.#count(rows);
    } catch (error) {
      if (rows === this.rows) this.#say(error);
    }
  }

  /** Let the server count the keys, so that the first jump does not wait for it. */
  async #count(rows) {
    while (rows === this.rows && this.main.isConnected && rows.count) {
      try {
        await this.page.ask(`${this.path}?at=${rows.count - 1}&limit=1`);
        return;
      } catch (error) {
        if (error.status !== 503) return;
        await new Promise((done) => setTimeout(done, AGAIN_MS));
      }
    }
  }

  #changed(shift) {
    this.list.resize(this.rows.count, shift);
    if (this.rows.isEmpty) return;
    this.#empty(this.rows.count ? "" : this.search.value ? "No key begins like this." : "This table has no rows.");
    this.#tell();
  }

  #empty(text) {
    if (text) this.note.replaceChildren(text);
    else if (this.note.dataset.about !== "key") this.note.replaceChildren();
  }

  #say(error) {
    delete this.note.dataset.about;
    this.note.replaceChildren(error.status ? span("error", error.message) : "The rows follow when the server answers.");
  }

  #tell() {
    const { count } = this.rows;
    const [first, last] = this.list.inView;
    const inView = `${number(Math.min(first + 1, count))}–${number(last)} of `;
    this.place.textContent = count ? `${last - first < count ? inView : ""}${number(count)} ${count === 1 ? "row" : "rows"}` : "";
  }

  #look(first, last) {
    if (!this.rows || this.rows.isEmpty) return;
    this.rows.need(first, last);
    this.#tell();
  }

  async #jump() {
    const { rows } = this;
    const asked = this.key.value;
    try {
      const found = await rows.find(asked);
      if (rows !== this.rows) return;
      this.list.jump(found.at);
      const isThere = found.key !== undefined && (shown(found.key) === asked || stringify(found.key) === asked);
      this.note.dataset.about = "key";
      this.note.replaceChildren(found.key === undefined ? "All keys are before this one." : isThere ? "" : `From the first key that is not before it: ${short(found.key)}`);
      this.list.element.focus();
    } catch (error) {
      if (rows === this.rows) this.#say(error);
    }
  }

  #draw(element, row) {
    element.replaceChildren(...(row ? [span("key", short(row.key)), span("value", short(row.value))] : [span("dim", "…")]));
    const { key, value } = element.dataset;
    element.classList.toggle("fresh", row !== undefined && value !== undefined && key === shown(row.key) && value !== short(row.value));
    if (row) [element.dataset.key, element.dataset.value] = [shown(row.key), short(row.value)];
  }

  #choose(row) {
    if (!row) return;
    const { key, value } = row;
    this.detail.replaceChildren(make("h2", {}, "Row"), make("pre", {}, stringify({ key, value }, 2)), new Why(this.page.ask, this.name, key).element);
  }

  /** After a poll: the rows in view, if the tables have changed. */
  async follow() {
    const versions = this.page.figure("views_versions_total");
    if (this.rows.isEmpty) await this.open();
    else if (versions !== this.#seen) await this.#refresh();
    this.#seen = versions;
  }

  async comeBack() {
    if (this.rows.isEmpty) this.open();
    else await this.#refresh().catch(() => {}); // it is said above the page
  }

  async #refresh() {
    const text = { text: String, json: stringify }[this.#keys];
    await this.rows.refresh(...this.list.view, text);
  }
}
