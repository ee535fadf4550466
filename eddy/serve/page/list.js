/** A list of any length, of which only the rows in view are elements; the keyboard reaches every row. */

import { make } from "./elements.js";

const ROW_PX = 28;
const MAX_PX = 8_000_000; // browsers end an element at some ten million pixels; of a longer list the bar moves slower than its rows

export class List {
  #rows = new Map();
  #count = 0;
  #frame = 0;
  #top = 0; // the top of the view, in pixels of all rows
  #bar = 0; // the scroll bar's place for this top
  #draw;
  #act;
  #seen;
  at = 0;

  /**
   * `draw(element, index)` fills the element of a row; `act(what, index)` is called with "open", "expand", "collapse" or
   * "twist", a click on the row's sign; `seen(drawn, inView)` after rows are drawn, with `view` and `inView` as they are.
   */
  constructor({ label, role = "listbox", draw, act = () => {}, seen = () => {} }) {
    this.#draw = draw;
    this.#act = act;
    this.#seen = seen;
    this.rowRole = role === "tree" ? "treeitem" : "option";
    this.element = make("div", { class: "list", role, tabindex: "0", "aria-label": label });
    this.space = this.element.appendChild(make("div", { class: "space", role: "presentation" }));
    this.element.addEventListener("scroll", () => this.refresh());
    this.element.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.element.addEventListener("keydown", (event) => this.#key(event));
    this.element.addEventListener("click", (event) => this.#click(event));
    new ResizeObserver(() => this.refresh()).observe(this.element);
  }

  get count() {
    return this.#count;
  }

  set count(count) {
    this.resize(count);
  }

  /** Show this number of rows. If `shift` rows were added above (removed, if below 0), the rows in view stay in view. */
  resize(count, shift = 0) {
    const top = this.#scrolled() + shift * ROW_PX; // drawn first, since a lower element moves the list's scroll bar
    this.#count = count;
    this.at = Math.max(0, Math.min(this.at + shift, count - 1));
    this.space.style.height = `${Math.min(count * ROW_PX, MAX_PX)}px`;
    if (shift || this.#stretch() > 1) this.#scrollTo(top);
    this.refresh();
  }

  /** The indexes that are drawn, those in view and a few more: from, to (not included). */
  get view() {
    const height = this.element.clientHeight;
    const first = Math.max(0, Math.floor(this.#scrolled() / ROW_PX) - 4);
    return [first, Math.min(this.#count, first + Math.ceil(height / ROW_PX) + 9)];
  }

  /** The indexes that a person sees, also in part: from, to (not included). */
  get inView() {
    const top = this.#scrolled();
    return [Math.floor(top / ROW_PX), Math.min(this.#count, Math.ceil((top + this.element.clientHeight) / ROW_PX))];
  }

  /** Draw the rows in view again, in the next frame. */
  refresh() {
    this.#frame ||= requestAnimationFrame(() => this.paint());
  }

  /** Choose a row, and scroll as far as it takes to see it. */
  go(index) {
    this.at = Math.max(0, Math.min(index, this.#count - 1));
    const top = this.at * ROW_PX;
    const shown = this.#scrolled();
    const room = this.element.clientHeight - ROW_PX;
    if (top < shown) this.#scrollTo(top);
    else if (top > shown + room) this.#scrollTo(top - room);
    this.refresh();
  }

  /** Choose a row, and show it in the upper part of the view. */
  jump(index) {
    this.go(index);
    this.#scrollTo(this.at * ROW_PX - 2 * ROW_PX);
    this.refresh();
  }

  #stretch() {
    const height = this.element.clientHeight;
    const all = this.#count * ROW_PX;
    return all <= MAX_PX ? 1 : (all - height) / (MAX_PX - height);
  }

  /** The top of the view. The bar is moved by the user, too. */
  #scrolled() {
    const bar = this.element.scrollTop;
    if (bar !== this.#bar) {
      this.#bar = bar;
      this.#top = bar * this.#stretch();
    }
    return this.#top;
  }

  #scrollTo(top) {
    this.#top = Math.max(0, Math.min(top, this.#count * ROW_PX - this.element.clientHeight));
    this.element.scrollTop = this.#top / this.#stretch();
    this.#bar = this.element.scrollTop;
  }

  /** In a long list the wheel moves the rows, not the bar, because moving the bar would skip rows. */
  #wheel(event) {
    if (this.#stretch() === 1 || event.ctrlKey || !event.deltaY) return;
    event.preventDefault();
    this.#scrollTo(this.#scrolled() + event.deltaY * [1, ROW_PX, this.element.clientHeight][event.deltaMode]);
    this.refresh();
  }

  /** Draw the rows now, for a caller that is in a frame of its own. */
  paint() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const [first, last] = this.view;
    const { inView } = this; // read before rows are written, after which the page would be laid out for it
    const shift = this.element.scrollTop - this.#top;
    for (const [index, row] of this.#rows)
      if (index < first || index >= last) {
        row.remove();
        this.#rows.delete(index);
      }
    for (let index = first; index < last; index++) {
      let row = this.#rows.get(index);
      if (row === undefined) {
        row = make("div", { class: "row", role: this.rowRole, id: `row-${index}` });
        row.dataset.index = index;
        this.#rows.set(index, row);
        this.space.append(row);
      }
      row.style.top = `${index * ROW_PX + shift}px`;
      row.classList.toggle("at", index === this.at);
      row.setAttribute("aria-selected", index === this.at);
      if (this.rowRole === "option") {
        row.setAttribute("aria-posinset", index + 1);
        row.setAttribute("aria-setsize", this.#count);
      }
      this.#draw(row, index);
    }
    this.element.setAttribute("aria-activedescendant", this.#rows.has(this.at) ? `row-${this.at}` : "");
    this.#seen([first, last], inView);
  }

  #key(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW_PX) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.#count, End: this.#count };
    const acts = { Enter: "open", " ": "open", ArrowRight: "expand", ArrowLeft: "collapse" };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) this.go(this.at + moves[event.key]);
    else if (event.key in acts && this.#count) this.#act(acts[event.key], this.at);
    else return;
    event.preventDefault();
  }

  #click(event) {
    const row = event.target.closest(".row");
    if (row === null) return;
    this.go(Number(row.dataset.index));
    this.#act(event.target.closest(".twist") ? "twist" : "open", this.at);
  }
}
