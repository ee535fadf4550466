/** Why a row is what it is, or why there is none. */

import { dim, make, number, shown, span } from "./elements.js";

/** The trace of a row: its sums as receipts, whose parts are opened by a click, and the rows that made it. */
export class Why {
  /** `key` is the key's text in requests. */
  constructor(ask, table, key, question = "Why is it so?") {
    Object.assign(this, { ask, table, key, asked: 0, since: null });
    const button = make("button", {}, question);
    button.addEventListener("click", () => this.show([]));
    this.element = make("div", { class: "why" }, button);
  }

  /** Show the trace with the parts of this path open. */
  async show(path) {
    const mine = ++this.asked;
    this.element.setAttribute("aria-busy", "true");
    if (!path.length) this.element.replaceChildren(dim("Computing it again from the tables …"));
    const parameters = new URLSearchParams([["key", this.key], ...path.map((part) => ["open", part]), ...(this.since ? [["since", this.since.version]] : [])]);
    try {
      const found = await this.ask(`v1/trace/${encodeURIComponent(this.table)}?${parameters}`);
      if (mine === this.asked) this.#draw(found, path);
    } catch (error) {
      if (mine === this.asked) this.element.replaceChildren(make("p", { class: "error" }, error.status ? error.message : "The server does not answer."));
    }
    if (mine === this.asked) this.element.removeAttribute("aria-busy");
  }

  #draw(found, path) {
    const receipts = found.rows.flatMap(sumsOf);
    const wrong = found.agrees === false ? make("p", { class: "error" }, "The row that is served is not as computed here from the inputs.") : "";
    const notes = (found.notes ?? []).map((note) => make("p", { class: "dim" }, note));
    this.element.replaceChildren(wrong, ...notes, this.#since(found, path), ...receipts.map((receipt) => this.#receipt(receipt, path, 0)), make("details", { open: receipts.length ? null : "" }, make("summary", {}, "The trace as text"), make("pre", {}, found.text)));
    this.element.querySelector(`[data-level="${path.length}"]`)?.focus();
  }

  /** The changes since the earliest version that the server has, or a button that asks for them. */
  #since({ moved, kept_since: kept, version }, path) {
    if (moved) return movesOf(moved, this.since);
    if (!kept || kept.version === version) return "";
    const button = make("button", {}, `What moved since ${clock(kept)}?`);
    button.addEventListener("click", () => ((this.since = kept), this.show(path)));
    return make("p", {}, button);
  }

  /** One level of a sum: its parts, the largest first, the open part with its own parts below, and the total. */
  #receipt(receipt, path, level) {
    const rows = receipt.parts.map((part) => {
      const isOpen = receipt.opened != null && part.opens === path[level];
      const name = part.opens ? make("button", { class: "part", "aria-expanded": String(isOpen) }, named(part)) : span("", named(part));
      name.addEventListener("click", () => part.opens && this.show(isOpen ? path.slice(0, level) : [...path.slice(0, level), part.opens]));
      return [line(name, part.number), isOpen ? make("li", {}, this.#receipt(receipt.opened, path, level + 1)) : null];
    });
    const rest = receipt.more ? line(span("dim", `${number(receipt.more)} more`), receipt.rest) : null;
    const total = make("p", { class: "total", tabindex: "-1", "data-level": level }, span("", named(receipt)), span("number", amount(receipt.number)));
    return make("section", { class: "receipt", "aria-label": named(receipt) }, total, make("ul", {}, ...rows, rest));
  }
}

const clock = ({ shown_ms: ms }) => new Date(ms).toLocaleTimeString();

/** The parts that have changed, the greatest change first, each with the records that changed it. */
function movesOf({ then, now, parts = [], rows = [], more = 0, exact }, since) {
  const values = (found) => found.map(shown).join(" and ") || "no row";
  const changed = (each) => make("li", { class: "dim" }, `${each.step} ${shown(each.key)}: ${each.then == null ? "none" : shown(each.then)} → ${each.now == null ? "none" : shown(each.now)}${each.record ? `, by ${each.record}` : ""}`);
  const rest = (count) => (count ? make("li", { class: "dim" }, `${number(count)} more`) : null);
  const lines = parts.flatMap((part) => [line(span("", `${named(part)} of ${part.of}`), `${amount(part.then)} → ${amount(part.now)}`), make("li", {}, make("ul", {}, ...(part.rows ?? []).map(changed), rest(part.more)))]);
  const none = parts.length + rows.length ? null : make("li", { class: "dim" }, "Nothing of which it is made has changed.");
  return make("section", { class: "receipt moved", "aria-label": "What moved" }, make("p", { class: "total" }, span("", `Since ${clock(since)}${exact ? "" : ", not exact"}`), span("number", `${values(then)} → ${values(now)}`)), make("ul", {}, ...lines, ...rows.map(changed), rest(more), none));
}

function line(name, value) {
  return make("li", { class: "line" }, name, span("number", amount(value)));
}

/** The receipts in a row of a trace and in the rows that made it. */
function sumsOf(row) {
  return row.sums ?? (row.of ?? []).flat().flatMap(sumsOf);
}

function named({ title, key, word, name }) {
  const isKey = title === shown(key) || (typeof key === "object" && title.replace(/([,:]) /g, "$1") === shown(key));
  const keyed = word || isKey ? title : `${title} (${shown(key)})`;
  return name ? `${keyed} ${name}` : keyed;
}

function amount(value) {
  return typeof value === "string" ? value : value.toLocaleString("en", { maximumFractionDigits: 20 });
}
