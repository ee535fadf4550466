/** A list of any length, of which only the rows in view are elements; the keyboard reaches each of them. */

const ROW_PX = 28;
const MAX_PX = 8_000_000; // browsers end an element at some ten million pixels; a longer list is scrolled faster

export class List {
  #rows = new Map();
  #count = 0;
  #frame = 0;
  #draw;
  #act;
  at = 0;

  /**
   * `draw(element, index)` fills the element of a row; `act(what, index)` is called with "open", "expand", "collapse" or
   * "twist", a click on the row's sign.
   */
  constructor({ label, role = "listbox", draw, act = () => {} }) {
    this.#draw = draw;
    this.#act = act;
    this.rowRole = role === "tree" ? "treeitem" : "option";
    this.element = make("div", { class: "list", role, tabindex: "0", "aria-label": label });
    this.space = this.element.appendChild(make("div", { class: "space", role: "presentation" }));
    this.element.addEventListener("scroll", () => this.refresh());
    this.element.addEventListener("keydown", (event) => this.#key(event));
    this.element.addEventListener("click", (event) => this.#click(event));
    new ResizeObserver(() => this.refresh()).observe(this.element);
  }

  get count() {
    return this.#count;
  }

  set count(count) {
    this.#count = count;
    this.at = Math.max(0, Math.min(this.at, count - 1));
    this.space.style.height = `${Math.min(count * ROW_PX, MAX_PX)}px`;
    this.refresh();
  }

  /** The indexes in view: from, to (not included). */
  get view() {
    const height = this.element.clientHeight;
    const first = Math.max(0, Math.floor(this.#top(this.element.scrollTop) / ROW_PX) - 4);
    return [first, Math.min(this.#count, first + Math.ceil(height / ROW_PX) + 9)];
  }

  /** Draw the rows in view again, in the next frame. */
  refresh() {
    this.#frame ||= requestAnimationFrame(() => this.paint());
  }

  go(index) {
    this.at = Math.max(0, Math.min(index, this.#count - 1));
    const top = this.at * ROW_PX;
    const shown = this.#top(this.element.scrollTop);
    const room = this.element.clientHeight - ROW_PX;
    if (top < shown) this.element.scrollTop = this.#scroll(top);
    else if (top > shown + room) this.element.scrollTop = this.#scroll(top - room);
    this.refresh();
  }

  #stretch() {
    const height = this.element.clientHeight;
    const all = this.#count * ROW_PX;
    return all <= MAX_PX ? 1 : (all - height) / (MAX_PX - height);
  }

  #top(scrolled) {
    return scrolled * this.#stretch();
  }

  #scroll(top) {
    return top / this.#stretch();
  }

  /** Draw them now: for a caller that is in a frame of its own. */
  paint() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const [first, last] = this.view;
    const shift = this.element.scrollTop - this.#top(this.element.scrollTop);
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
      this.#draw(row, index);
    }
    this.element.setAttribute("aria-activedescendant", this.#rows.has(this.at) ? `row-${this.at}` : "");
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

/** An element with attributes and children; text is never markup. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes))
    if (value != null && value !== false) element.setAttribute(attribute, value);
  element.append(...children.flat().filter((child) => child != null));
  return element;
}
