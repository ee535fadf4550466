/** The list of tables, and the rows of a table: by place, from a key on, or by the beginning of their keys. */

import { stringify } from "./client.js";
import { card, dim, make, number, shown, span } from "./elements.js";
import { List } from "./list.js";
import { sourceRecord } from "./records.js";
import { FoundRows, Rows } from "./rows.js";
import { Why } from "./trace.js";

const encode = encodeURIComponent;
const CELL = 400; // the characters of a value that a row shows
const AGAIN_MS = 1_000;
const SIGNS = { "\n": "↵", "\r": "␍", "\t": "⇥" };
const short = (value) => {
  const text = shown(value);
  return (text.length > CELL ? `${text.slice(0, CELL)}…` : text).replace(/[\n\r\t]/g, (character) => SIGNS[character]);
};

/** All tables. `page.ask` asks the server; `page.follow(each, back)` calls `each` after polls and `back` after an outage. */
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

/** The rows of a table. `parameters` of its address: `columns`, `search` and `order`. */
export function showTable(main, page, name, parameters) {
  const view = new TableView(main, page, name, parameters);
  page.follow(() => view.follow(), () => view.comeBack());
  return view.open();
}

/** The columns of a value: the members of an object, or else the one column `value`. */
const columnsOf = (value) => (value !== null && typeof value === "object" && !Array.isArray(value) ? value : { value });

class TableView {
  #keys; // how keys are written in requests: text, bytes or json
  #typed;
  #seen;
  #opening = null; // the rows whose first page is being requested
  #learning = null;
  #known = new Set(); // the columns of the rows that were shown
  #chosen;

  constructor(main, page, name, parameters) {
    Object.assign(this, { main, page, name });
    this.path = `v1/tables/${encode(name)}`;
    this.#chosen = parameters.getAll("column");
    this.key = make("input", { id: "key", placeholder: "a key, as text or JSON" });
    this.prefix = make("input", { id: "search", type: "search", placeholder: "a text" });
    this.text = make("input", { id: "text", type: "search", placeholder: "a text in keys and values", value: parameters.get("search") ?? "" });
    this.order = make("select", { id: "order" }, make("option", { value: "" }, "key"));
    this.columns = make("details", { class: "choice" }, make("summary", {}, "Columns"), (this.boxes = make("div", {})));
    this.files = make("details", { class: "choice" }, make("summary", {}, "Export"));
    this.heads = make("div", { class: "heads", hidden: "" });
    this.detail = make("section", { class: "card", "aria-live": "polite" }, dim("Choose a row."));
    this.place = make("span", {});
    this.note = make("span", { role: "status" });
    this.more = make("button", { type: "button", hidden: "" }, "Go on");
    this.list = new List({
      label: `Rows of ${name}`,
      draw: (element, index) => this.#draw(element, this.rows?.at(index)),
      act: (what, index) => what === "open" && this.#choose(this.rows.at(index)),
      seen: (drawn, inView) => this.#look(drawn, inView),
    });
    this.#know([...this.#chosen, ...[parameters.get("order")?.replace(/^-/, "")].filter(Boolean)]);
    this.order.value = parameters.get("order") ?? "";
    this.#listen();
    main.replaceChildren(
      make("h1", {}, make("a", { href: "#/tables" }, "Tables"), ` / ${name}`),
      make("div", { class: "tools" }, this.go, this.values, this.columns, this.files, this.find),
      make("div", { class: "columns" }, make("div", {}, this.heads, this.list.element, make("p", { class: "bar" }, this.place, this.note, this.more)), this.detail),
    );
  }

  #listen() {
    this.go = make("form", {}, make("label", { for: "key" }, "Go to key"), this.key, make("button", {}, "Go"));
    this.values = make("form", {}, make("label", { for: "text" }, "Search"), this.text, make("label", { for: "order" }, "Sort by"), this.order, make("button", {}, "Search"));
    this.find = make("form", { role: "search" }, make("label", { for: "search" }, "Key begins with"), this.prefix);
    const submitted = (form, act) => form.addEventListener("submit", (event) => {
      event.preventDefault();
      act();
    });
    submitted(this.go, () => this.#jump());
    submitted(this.values, () => this.open());
    submitted(this.find, () => {});
    this.order.addEventListener("change", () => this.open());
    this.prefix.addEventListener("input", () => {
      clearTimeout(this.#typed);
      this.#typed = setTimeout(() => this.open(), 200);
    });
    this.text.addEventListener("search", () => this.text.value || this.open()); // it was cleared
    this.more.addEventListener("click", () => (this.rows.isRunning ? this.rows.stop() : this.rows.run()));
  }

  /** Show the rows from the first row on, or the rows that a search finds. */
  async open() {
    this.rows?.stop?.();
    const asked = new URLSearchParams([["prefix", this.prefix.value], ["search", this.text.value], ["order", this.order.value]].filter(([, value]) => value));
    this.isFound = asked.has("search") || asked.has("order");
    const opened = this.isFound ? this.#search(asked) : this.#all(asked); // first, since an empty list is laid out, too
    this.#remember();
    this.list.count = 0;
    this.list.go(0);
    this.list.paint();
    this.note.replaceChildren();
    this.place.replaceChildren();
    delete this.note.dataset.about;
    this.more.hidden = true;
    await opened;
  }

  /** Open the table again if no rows have arrived, unless they are being requested. */
  async #reopen() {
    if (this.#opening !== this.rows) await this.open();
  }

  async #all(asked) {
    const rows = (this.rows = new Rows(this.page.ask, `${this.path}?${asked}`, {
      changed: (shift) => rows === this.rows && this.#changed(shift),
      failed: (error) => rows === this.rows && this.#say(error),
    }));
    this.#opening = rows;
    try {
      await Promise.all([rows.load(0).then(() => rows === this.rows && this.#changed(0)), this.#learned()]);
      if (rows === this.rows && !this.prefix.value) this.#count(rows);
    } catch (error) {
      if (rows === this.rows) this.#say(error);
    } finally {
      if (rows === this.#opening) this.#opening = null;
    }
  }

  /** Ask once how keys are written, and which file formats there are. */
  #learned() {
    this.#learning ??= this.#learn().catch((error) => {
      this.#learning = null;
      throw error;
    });
    return this.#learning;
  }

  async #learn() {
    const { tables, formats } = await this.page.ask("v1/tables");
    const offers = [["csv", "CSV"], ["jsonl", "JSON Lines"], ["parquet", "Parquet"]].map(([form, title]) => {
      const button = make("button", { type: "button", disabled: formats.includes(form) ? null : "" }, title);
      button.addEventListener("click", () => this.#save(form));
      return button;
    });
    this.files.replaceChildren(this.files.firstChild, make("div", {}, ...offers), dim(`All rows, or those whose key begins with the text beside; of one exact version. Columns are those that you choose.${formats.includes("parquet") ? "" : " Parquet needs pyarrow where the table is served."}`));
    const table = tables.find((each) => each.name === this.name);
    this.isSource = table?.kind === "source";
    this.#keys = table?.keys ?? null;
  }

  async #save(form) {
    const asked = new URLSearchParams([["format", form], ["prefix", this.prefix.value], ...this.#chosen.map((column) => ["column", column])].filter(([, value]) => value));
    try {
      await this.page.save(`${this.path}?${asked}`, `${this.name}.${form}`);
    } catch (error) {
      this.#say(error);
    }
  }

  async #search(asked) {
    this.#learned().catch(() => {}); // the search says so, too
    const rows = (this.rows = new FoundRows(this.page.ask, `${this.path}?${asked}`, { isSorted: asked.has("order"), changed: () => rows === this.rows && this.#found() }));
    await rows.run();
  }

  /** Keep the user's choices in the address, so that the same rows are shown after a reload. */
  #remember() {
    const kept = new URLSearchParams([...this.#chosen.map((column) => ["column", column]), ["search", this.text.value], ["order", this.order.value]].filter(([, value]) => value));
    history.replaceState(null, "", `#/tables/${encode(this.name)}${kept.size ? `?${kept}` : ""}`);
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

  /** Rows have arrived: they are drawn at once, not in the next frame, and with them what is said of them. */
  #changed(shift) {
    this.list.resize(this.rows.count, shift);
    if (this.rows.isEmpty) return;
    if (!this.rows.isFailing) this.#empty(this.rows.count ? "" : this.prefix.value ? "No key begins like this." : "This table has no rows.");
    this.list.paint();
  }

  #found() {
    const { rows } = this;
    this.list.resize(rows.count);
    this.list.paint();
    const searched = rows.isDone ? `all ${number(rows.searched)}` : number(rows.searched);
    const what = rows.isSorted ? `the first ${number(rows.count)} by ${this.order.value.replace(/^-/, "")}` : `${number(rows.count)} found`;
    this.place.textContent = `Searched ${searched} rows: ${what}, as they were then.`;
    this.note.replaceChildren(rows.error ? span("error", rows.error.status ? rows.error.message : "The server does not answer.") : rows.isRunning ? "" : rows.isDone ? "That is all." : "There are more rows to search.");
    this.more.hidden = rows.isDone;
    this.more.textContent = rows.isRunning ? "Stop" : "Go on";
  }

  #empty(text) {
    if (text) this.note.replaceChildren(text);
    else if (this.note.dataset.about !== "key") this.note.replaceChildren();
  }

  #say(error) {
    delete this.note.dataset.about;
    this.note.replaceChildren(error.status ? span("error", error.message) : "The rows follow when the server answers.");
  }

  #tell([first, last]) {
    const { count } = this.rows;
    const inView = `${number(Math.min(first + 1, count))}–${number(last)} of `;
    this.place.textContent = count ? `${last - first < count ? inView : ""}${number(count)} ${count === 1 ? "row" : "rows"}` : "";
  }

  #look(drawn, inView) {
    if (!this.rows || this.isFound || this.rows.isEmpty) return;
    this.rows.need(...drawn);
    this.#tell(inView);
  }

  async #jump() {
    if (this.isFound) {
      this.text.value = this.order.value = "";
      await this.open();
    }
    const { rows } = this;
    const asked = this.key.value;
    try {
      const found = await rows.find(asked);
      if (rows !== this.rows) return;
      this.list.jump(found.at);
      const isThere = found.key !== undefined && (shown(found.key) === asked || stringify(found.key) === asked);
      if (!isThere) this.detail.replaceChildren(make("h2", {}, asked), dim("This key has no row."), new Why(this.page.ask, this.name, asked, "Why has it no row?").element);
      this.note.dataset.about = "key";
      this.note.replaceChildren(found.key === undefined ? "All keys are before this one." : isThere ? "" : `From the first key that is not before it: ${short(found.key)}`);
      this.list.element.focus();
    } catch (error) {
      if (rows === this.rows) this.#say(error);
    }
  }

  /** Offer columns that were not known. */
  #know(columns) {
    for (const column of columns) {
      if (this.#known.has(column)) continue;
      this.#known.add(column);
      for (const [sign, text] of [["", "lowest first"], ["-", "highest first"]]) this.order.append(make("option", { value: sign + column }, `${column}, ${text}`));
      const box = make("input", { type: "checkbox" });
      box.checked = this.#chosen.includes(column);
      box.addEventListener("change", () => {
        this.#chosen = box.checked ? [...this.#chosen, column] : this.#chosen.filter((each) => each !== column);
        this.#remember();
        this.list.refresh();
      });
      this.boxes.append(make("label", {}, box, column));
    }
  }

  #draw(element, row) {
    if (row) this.#know(Object.keys(columnsOf(row.value)));
    this.#head();
    const cells = row && (this.#chosen.length ? this.#cells(row.value) : [span("value", short(row.value))]);
    element.replaceChildren(...(row ? [row.key === "" ? span("key dim", "(empty text)") : span("key", short(row.key)), ...cells] : [span("dim", "…")]));
    const { key, value } = element.dataset;
    element.classList.toggle("fresh", row !== undefined && value !== undefined && key === shown(row.key) && value !== short(row.value));
    if (row) [element.dataset.key, element.dataset.value] = [shown(row.key), short(row.value)];
  }

  #cells(value) {
    const columns = columnsOf(value);
    return this.#chosen.map((column) => span("cell", column in columns ? short(columns[column]) : ""));
  }

  #head() {
    this.heads.hidden = !this.#chosen.length;
    if (this.heads.dataset.of === this.#chosen.join("\n")) return;
    this.heads.dataset.of = this.#chosen.join("\n");
    this.heads.replaceChildren(span("key", "key"), ...this.#chosen.map((column) => span("cell", column)));
  }

  /** A key as it is written in requests; bytes are base64 in rows, and hexadecimal digits here. */
  #textOf(key) {
    if (this.#keys === "bytes") return `0x${[...atob(key)].map((byte) => byte.charCodeAt(0).toString(16).padStart(2, "0")).join("")}`;
    return this.#keys === "json" ? stringify(key) : shown(key);
  }

  async #choose(row) {
    if (!row) return;
    try {
      await this.#learned();
    } catch (error) {
      this.#say(error);
      return;
    }
    const { key, value } = row;
    const text = this.#textOf(key);
    const whole = `{\n  "key": ${stringify(key)},\n  "value": ${stringify(value, 2).replaceAll("\n", "\n  ")}\n}`;
    this.detail.replaceChildren(make("h2", {}, "Row"), make("pre", { tabindex: "0", role: "region", "aria-label": "Row" }, whole), new Why(this.page.ask, this.name, text).element, this.isSource ? sourceRecord(this.page, this.name, text) : "");
  }

  /** After a poll: read the rows in view again if the tables have changed, but not rows that a search found. */
  async follow() {
    const versions = this.page.figure("views_versions_total");
    if (this.isFound) return;
    if (this.rows.isEmpty) await this.#reopen();
    else if (versions !== this.#seen) await this.#refresh();
    this.#seen = versions;
  }

  /** When the server answers again: continue a search that it did not answer, or read the rows in view again. */
  async comeBack() {
    if (this.isFound) {
      const { error } = this.rows;
      if (error && !error.status) await this.rows.run();
    } else if (this.rows.isEmpty) await this.#reopen();
    else await this.#refresh().catch(() => {}); // it is said above the page
  }

  async #refresh() {
    await this.#learned();
    await this.rows.refresh(...this.list.inView, (key) => this.#textOf(key));
  }
}
