/** The rows of a table that are in view, and pages around them: read when they come into view, by their places. */

const PAGE_ROWS = 200;
const KEPT_ROWS = 20_000;
const AT_A_TIME = 2; // pages that are read at a time, so that those passed over on the way are not read
const AGAIN_MS = 1_000;

export class Rows {
  count = 0;
  #rows = new Map(); // by place, each with the number of its reading as `age`
  #age = 1;
  #isRefreshing = false;
  isEmpty = true; // until the first rows have arrived
  isFailing = false; // since a page was not read, until rows arrive
  #reading = new Set();
  #wait = 0;

  /**
   * `ask(path)` answers a request; `path` is a table's with a query string. `changed(shift)` is called when rows have
   * arrived, and earlier rows are `shift` places further down now. `failed(error)`: a page was not read.
   */
  constructor(ask, path, { changed, failed = () => {} }) {
    Object.assign(this, { ask, path, changed, failed });
  }

  /** The row at a place, if it is here. */
  at(place) {
    return this.#rows.get(place);
  }

  /** Read the rows at these places, as far as they are not here or old, and then the pages beside them. */
  need(first, last) {
    if (performance.now() < this.#wait) return;
    const pages = new Set();
    for (let place = first; place < Math.min(last, this.count); place++) if (this.#rows.get(place)?.age !== this.#age) pages.add(Math.floor(place / PAGE_ROWS));
    for (const page of [Math.floor(last / PAGE_ROWS) + 1, Math.floor(first / PAGE_ROWS) - 1]) if (!this.#rows.has(page * PAGE_ROWS)) pages.add(page);
    for (const page of pages) {
      if (this.#reading.size >= AT_A_TIME) return;
      if (page >= 0 && page * PAGE_ROWS < this.count && !this.#reading.has(page)) this.#read(page);
    }
  }

  async #read(page) {
    this.#reading.add(page);
    try {
      await this.load(page * PAGE_ROWS);
    } catch (error) {
      this.#later(error);
    } finally {
      this.#reading.delete(page);
    }
    this.changed(0);
  }

  #later(error) {
    this.isFailing = true;
    this.#wait = performance.now() + AGAIN_MS;
    setTimeout(() => this.changed(0), AGAIN_MS + 10);
    this.failed(error);
  }

  /** Read the page at a place. */
  async load(place) {
    const age = this.#age;
    let { rows, next, at, count } = await this.ask(`${this.path}&at=${place}&limit=${PAGE_ROWS}`);
    if (age !== this.#age) return; // they may have other places by now
    this.#take(at, rows, count);
    while (next !== null && rows.length < PAGE_ROWS) {
      // long rows: the rest of the page follows by its key
      const more = await this.ask(`${this.path}&after=${encodeURIComponent(next)}&limit=${PAGE_ROWS - rows.length}`);
      if (age !== this.#age) return;
      rows = [...rows, ...more.rows];
      next = more.next;
      this.#take(at, rows, count);
    }
  }

  /** The place of the first row from a key on. */
  async find(key) {
    const { at, count, rows } = await this.ask(`${this.path}&find=${encodeURIComponent(key)}&limit=1`);
    return { at, count, key: rows[0]?.key };
  }

  /**
   * Read the rows in view again, from the key of the first one on, so that they stay where they are. `textOf` writes a
   * key.
   */
  async refresh(first, last, textOf) {
    if (this.#isRefreshing) return;
    this.#isRefreshing = true;
    try {
      const top = first > 0 ? this.#rows.get(first) : undefined;
      const from = top === undefined ? `at=${first}` : `find=${encodeURIComponent(textOf(top.key))}`;
      const { rows, at, count } = await this.ask(`${this.path}&${from}&limit=${Math.max(1, last - first)}`);
      const shift = top === undefined ? 0 : at - first;
      this.#age++;
      if (shift) this.#rows.clear();
      this.#take(at, rows, count);
      this.changed(shift);
    } finally {
      this.#isRefreshing = false;
    }
  }

  #take(at, rows, count) {
    this.isEmpty = this.isFailing = false;
    this.count = count;
    rows.forEach((row, index) => this.#rows.set(at + index, { ...row, age: this.#age }));
    if (this.#rows.size <= KEPT_ROWS) return;
    for (const place of this.#rows.keys()) if (place >= count || Math.abs(place - at) > KEPT_ROWS / 4) this.#rows.delete(place);
  }
}

const FOUND_ROWS = 500; // found rows after which the user is asked whether to continue

/** Rows by their values: those that contain a text, or the first ones by a column, from many short answers of the server. */
export class FoundRows {
  searched = 0;
  isDone = false;
  isRunning = false;
  error = null;
  #rows = [];
  #after = null;
  #wanted = 0;
  #isAsking = false;

  /** `path` has the search; with `isSorted` only the first rows are kept. `changed()` is called after each answer. */
  constructor(ask, path, { isSorted, changed }) {
    Object.assign(this, { ask, path, isSorted, changed });
  }

  get count() {
    return this.#rows.length;
  }

  at(place) {
    return this.#rows[place];
  }

  need() {}

  /** Continue the search until many more rows are found, all rows are searched, or it is stopped. */
  async run() {
    this.isRunning = true;
    this.error = null;
    this.#wanted = this.count + FOUND_ROWS;
    if (this.#isAsking) return; // it was stopped, and its last answer has not arrived: the search continues with that
    this.#isAsking = true;
    try {
      while (this.isRunning && !this.isDone && (this.isSorted || this.count < this.#wanted)) {
        const after = this.#after === null ? "" : `&after=${encodeURIComponent(this.#after)}`;
        const { rows, searched, next } = await this.ask(`${this.path}&limit=${FOUND_ROWS}${after}`);
        this.searched += searched;
        this.#after = next;
        this.isDone = next === null;
        this.#rows = this.isSorted ? this.#merged(rows) : [...this.#rows, ...rows];
        this.changed();
      }
    } catch (error) {
      this.error = error;
    }
    this.isRunning = this.#isAsking = false;
    this.changed();
  }

  stop() {
    this.isRunning = false;
    this.changed();
  }

  /** Merge in rows by position. Of equal rows those read earlier are first, because their keys are first. */
  #merged(rows) {
    const all = [...this.#rows, ...rows.map(({ row, position }) => ({ ...row, position }))];
    return all.sort((one, other) => (one.position < other.position ? -1 : one.position > other.position ? 1 : 0)).slice(0, FOUND_ROWS);
  }
}
