/**
 * Live queries of an eddy table server: one ES module without dependencies, for browsers, Node, Deno and workers.
 *
 *   import { live } from "https://views.example/client.js";
 *   const view = live("https://views.example", "tree", { root: 1 });
 *   view.subscribe(() => console.log(view.rows, view.version.exact));
 *
 * The server sends patches of buckets; rows are nested from them when they are read. Rows and nests that have not
 * changed are the same objects as before, so that comparing references finds the new ones. All queries of one server
 * share a connection, which is made again, with back-off, whenever it ends, and goes on from the last version seen.
 *
 * Integers beyond 2^53 are BigInt, since a number of JavaScript would round them; `stringify` writes them as JSON.
 */

const FIRST_RETRY_MS = 250;
const MAX_RETRY_MS = 30_000;
const HEARTBEAT_S = 15;
const ANSWER_MS = 10_000; // until the head of an answer
const MAX_ROWS = 1_000_000;
const MAX_QUERY_CHARS = 6_000; // of all queries in a URL; servers and proxies refuse longer ones
const FEW = 64;
const FATAL = new Set([400, 401, 403, 404, 405]);

const LONG = /\d{16}/;
const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const INTEGER = /^-?\d+$/;

/** The value of a JSON text. Integers that a number would round are BigInt. */
export function parse(text) {
  if (!LONG.test(text)) return JSON.parse(text);
  const mark = markOf();
  const marked = text.replace(TOKEN, (token) =>
    INTEGER.test(token) && !Number.isSafeInteger(Number(token)) ? `"${mark}${token}"` : token,
  );
  return JSON.parse(marked, (_, value) =>
    typeof value === "string" && value.startsWith(mark) ? BigInt(value.slice(mark.length)) : value,
  );
}

/** A value as JSON; a BigInt is written as an integer. */
export function stringify(value, indent) {
  const mark = markOf();
  let found = false;
  const text = JSON.stringify(value, (_, each) => {
    if (typeof each !== "bigint") return each;
    found = true;
    return `${mark}${each}`;
  }, indent);
  return found ? text.replace(new RegExp(`"${mark}(-?\\d+)"`, "g"), "$1") : text;
}

/** A prefix that no string of the data has. */
function markOf() {
  return `int-${Math.random()}-`;
}

/** The buckets of a view, made of patches alone: lists of rows by id, each with the ids of the buckets below it. */
export class Buckets {
  #buckets = new Map();

  get size() {
    return this.#buckets.size;
  }

  /** The entries `{row, below}` of a bucket, in order. Not to be changed. */
  entries(id) {
    return this.#buckets.get(id)?.entries ?? [];
  }

  /** Apply one patch; returns the ids of the buckets that it changed. */
  apply(ops) {
    const found = new Map();
    const dropped = [];
    for (const op of ops) {
      if (op.type === "drop") {
        this.#touch(op.bucket);
        this.#buckets.delete(op.bucket);
        dropped.push(op.bucket);
        continue;
      }
      const list = found.get(op.bucket);
      if (list === undefined) found.set(op.bucket, [op]);
      else list.push(op);
    }
    for (const [id, list] of found) {
      applyTo(this.#bucket(id), list);
      this.#touch(id);
    }
    return [...found.keys(), ...dropped];
  }

  /** The nested rows of a view, from its root bucket and the shape that the server sent. */
  nested(root, shape, maxRows = MAX_ROWS) {
    const whole = this.#buckets.get(root)?.made;
    if (whole !== undefined) return whole;
    const path = new Set();
    let left = maxRows;
    const frames = [this.#frame(root, 0, shape, null, null)];
    for (;;) {
      const frame = frames[frames.length - 1];
      if (frame.next === 0) {
        if (frame.id !== null) path.add(placeOf(frame.id));
        if ((left -= frame.found.length) < 0) throw new Error("the nested form of this view has too many rows");
      }
      if (frame.next < frame.tasks.length) {
        const [index, name, id, level] = frame.tasks[frame.next++];
        const values = (frame.values[index] ??= {});
        const known = id === null ? undefined : this.#buckets.get(id);
        if (id !== null && path.has(placeOf(id))) {
          values.$cycle = true;
          frame.pure = false;
        } else if (known?.made !== undefined) {
          values[name] = known.made;
          addAbove(known, frame.id);
        } else {
          frames.push(this.#frame(id, level, shape, values, name));
        }
        continue;
      }
      const made = madeOf(frame, shape);
      frames.pop();
      if (frame.id !== null) path.delete(placeOf(frame.id));
      const above = frames[frames.length - 1];
      this.#keep(frame, made, above);
      if (above === undefined) return made;
      frame.target[frame.name] = made;
      above.pure &&= frame.pure;
    }
  }

  #bucket(id) {
    let bucket = this.#buckets.get(id);
    if (bucket === undefined) {
      bucket = { entries: [], made: undefined, above: null };
      this.#buckets.set(id, bucket);
    }
    return bucket;
  }

  /** Forget the nested forms of a bucket that has changed, and of the buckets that contain it. */
  #touch(id) {
    const todo = [id];
    while (todo.length) {
      const bucket = this.#buckets.get(todo.pop());
      if (bucket === undefined) continue;
      bucket.made = undefined;
      if (bucket.above instanceof Set) todo.push(...bucket.above);
      else if (bucket.above !== null) todo.push(bucket.above);
      bucket.above = null;
    }
  }

  /** Keep the nested form of a bucket, unless it depends on the path to the bucket: in a cycle, or below a bounded depth. */
  #keep(frame, made, above) {
    if (frame.id === null) return;
    frame.pure &&= placeOf(frame.id) === frame.id;
    for (const id of frame.through) addAbove(this.#bucket(id), frame.id);
    const bucket = this.#bucket(frame.id);
    if (frame.pure) bucket.made = made;
    if (above !== undefined) addAbove(bucket, above.id);
  }

  #frame(id, level, shape, target, name) {
    const through = [];
    const found = this.#found(id, level, shape, through);
    const tasks = [];
    for (let index = 0; index < found.length; index++) {
      const { entry, level: own } = found[index];
      for (const nest in entry.below) tasks.push([index, nest, entry.below[nest], shape[own].nests[nest]]);
    }
    return { id, level, found, tasks, values: [], next: 0, pure: true, target, name, through };
  }

  /** The rows of a bucket; if its query plucks a nest, the nest's rows, each once, in their order. */
  #found(id, level, shape, through) {
    const entries = id === null ? [] : this.entries(id);
    const { pluck, nests, one } = shape[level];
    if (pluck == null) return entries.map((entry) => ({ entry, level }));
    const below = nests[pluck];
    const rows = [];
    for (const entry of entries) {
      const next = entry.below[pluck] ?? null;
      if (next !== null) through.push(next);
      rows.push(...this.#found(next, below, shape, through));
    }
    const byPosition = new Map(rows.map((each) => [each.entry.row.$at, each]));
    const found = [...byPosition.keys()].sort().map((position) => byPosition.get(position));
    return one ? found.slice(0, 1) : found;
  }
}

/** Note that the nested form of `id` contains that of a bucket. Most buckets are in one other bucket; they need no set. */
function addAbove(bucket, id) {
  if (bucket.above === null || bucket.above === id) bucket.above = id;
  else if (bucket.above instanceof Set) bucket.above.add(id);
  else bucket.above = new Set([bucket.above, id]);
}

function applyTo(bucket, ops) {
  const leaving = new Map();
  const arriving = [];
  for (const op of ops) {
    if (op.type === "remove") leaving.set(op.index, -1);
    else if (op.type === "move") leaving.set(op.before, op.index);
    else if (op.type === "insert") arriving.push([op.index, { row: op.row, below: op.below ?? {}, made: undefined }]);
  }
  const { entries } = bucket;
  if (leaving.size) {
    for (const [before, index] of leaving) if (index >= 0) arriving.push([index, entries[before]]);
    if (leaving.size <= FEW) for (const at of [...leaving.keys()].sort((a, b) => b - a)) entries.splice(at, 1);
    else bucket.entries = entries.filter((_, at) => !leaving.has(at));
  }
  arriving.sort((one, other) => one[0] - other[0]);
  if (arriving.length <= FEW) for (const [index, entry] of arriving) bucket.entries.splice(index, 0, entry);
  else bucket.entries = merged(bucket.entries, arriving);
  for (const op of ops)
    if (op.type === "set") bucket.entries[op.index] = { row: op.row, below: op.below ?? {}, made: undefined };
}

/** Entries, with others inserted at their final indexes, which are in rising order. */
function merged(entries, arriving) {
  const all = [];
  let next = 0;
  for (const [index, entry] of arriving) {
    while (all.length < index) all.push(entries[next++]);
    all.push(entry);
  }
  while (next < entries.length) all.push(entries[next++]);
  return all;
}

/** The nested value of a bucket whose nests are made: rows, one of them, or a value. */
function madeOf({ found, level, values }, shape) {
  const { empty, value, columns, one } = shape[level];
  if (empty != null) {
    const row = found.length ? found[0].entry.row : empty;
    if (value != null) return row[value];
    return [columns ? Object.fromEntries(columns.map((column) => [column, row[column]])) : row];
  }
  const rows = found.map(({ entry, level: own }, index) => rowOf(entry, values[index], shape[own].is_plucked));
  return one ? (rows[0] ?? null) : rows;
}

/** A row with its nests: the same object as the last time if nothing in it is new. */
function rowOf(entry, nests, isPlucked) {
  if (nests === undefined && !isPlucked) return entry.row;
  const old = entry.made;
  if (old !== undefined) {
    let same = old.$cycle === nests?.$cycle;
    for (const name in nests) same &&= old[name] === nests[name];
    if (same) return old;
  }
  entry.made = { ...entry.row, ...nests };
  if (isPlucked) delete entry.made.$at;
  return entry.made;
}

/** The id of a bucket without the numbers of its levels: its place in the data. */
function placeOf(id) {
  const bracket = id.indexOf("[");
  const end = bracket < 0 ? id.length : bracket;
  const at = id.indexOf("@");
  return at < 0 || at > end ? id : id.slice(0, at) + id.slice(end);
}

/** An error of a server, with its `code`. */
export class QueryError extends Error {
  constructor(message, code) {
    super(message);
    this.name = "QueryError";
    this.code = code;
  }
}

/**
 * A query that is kept up to date. `state` is "connecting", "complete", "unknown" while the server reads a table anew,
 * "offline" while there is no connection (its rows stay), "error" or "closed".
 */
export class View {
  #connection;
  #listeners = new Set();
  #buckets = new Buckets();
  #staged = null;
  #rows;
  #first = deferred();

  constructor(connection, id, { name, args, text }, { skip, limit } = {}) {
    this.#connection = connection;
    this.id = id;
    this.name = name;
    this.args = args;
    /** The text of the query, if it has no name. */
    this.text = text;
    /** Whether it has a window of its own, in place of the query's limit. */
    this.windowed = skip !== undefined || limit !== undefined;
    this.skip = skip ?? 0;
    this.limit = limit ?? null;
    this.state = "connecting";
    this.error = null;
    this.version = null;
    this.root = "";
    this.shape = null;
    /** Whether the buckets are at the connection's last version, so that patches may follow. */
    this.whole = false;
    this.#first.promise.catch(() => {});
  }

  /** Resolves with the view when its first rows are here; rejects if the server refuses it. */
  get ready() {
    return this.#first.promise;
  }

  /** The nested rows, null before the first are here. Equal parts of two versions are the same objects. */
  get rows() {
    if (this.#rows === undefined && this.shape) this.#rows = this.#buckets.nested(this.root, this.shape);
    return this.#rows ?? null;
  }

  /** The entries `{row, below}` of a bucket: `entries(view.root)`, then those of the ids in `below`. */
  entries(bucket) {
    return this.#buckets.entries(bucket);
  }

  /** Call a function after each change, with the ids of the buckets that changed; returns a function that ends it. */
  subscribe = (listener) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  /** Show other rows at the root. */
  window({ skip = 0, limit = null }) {
    if (this.windowed && skip === this.skip && limit === this.limit) return;
    this.windowed = true;
    this.skip = skip;
    this.limit = limit;
    this.#connection.moveWindow(this);
  }

  /** End the query. */
  close() {
    if (this.state === "closed") return;
    this.#connection.remove(this);
    this.#set("closed");
  }

  /** @internal A page of a snapshot; the last one has the version. */
  takeSnapshot({ ops, version, more, root, shape }) {
    if (shape) {
      this.#staged = { buckets: new Buckets(), root, shape };
      this.whole = false;
    }
    this.#staged.buckets.apply(ops);
    if (more) return;
    ({ buckets: this.#buckets, root: this.root, shape: this.shape } = this.#staged);
    this.#staged = null;
    this.#rows = undefined;
    this.whole = true;
    this.version = version;
    this.#set("complete", null);
    this.#first.resolve(this);
  }

  /** @internal Apply the operations of a version; without them, unknown rows stay unknown. Returns a function that calls the listeners. */
  takePatch(ops, version) {
    if (!this.whole || (!ops && this.state === "unknown")) return null;
    this.version = version;
    let changed = [];
    if (ops) {
      changed = this.#buckets.apply(ops);
      this.#rows = undefined;
    }
    return () => this.#tell(changed);
  }

  /** @internal Apply a state from the server or the connection. */
  takeState(state, error = null) {
    if (this.state === "closed" || this.state === "error") return;
    if (state === "offline") this.#staged = null;
    this.error = error;
    if (error) this.#first.reject(error);
    this.#set(state);
  }

  #set(state, changed = []) {
    this.state = state;
    this.#tell(changed);
  }

  #tell(changed) {
    for (const listener of [...this.#listeners]) {
      try {
        listener(changed);
      } catch (error) {
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}

function deferred() {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}

/** One connection to a server, with any number of live queries. It is open while it has any. */
export class Connection {
  #url;
  #path;
  #token;
  #fetch;
  #retryMs;
  #views = new Map();
  #count = 0;
  #name = null;
  #lastId = null;
  #abort = null;
  #running = false;
  #pending = null;
  #posts = Promise.resolve();
  #wake = () => {};
  #sent = new Set();

  /**
   * `url` is the address of the server, without `/v1`; `token` is sent if the server needs one. With `texts` queries may
   * also be texts, if the server lets this caller read the tables themselves.
   */
  constructor(url, { token, texts = false, fetch = globalThis.fetch, retryMs = FIRST_RETRY_MS } = {}) {
    this.#path = texts ? "/v1/live-text" : "/v1/live";
    this.#url = String(url).replace(/\/+$/, "");
    this.#token = token;
    this.#fetch = fetch.bind(globalThis);
    this.#retryMs = retryMs;
  }

  /** Open a named query; see `View`. */
  live(name, args = {}, options = {}) {
    return this.#begin({ name, args }, options);
  }

  /** Open a query that is given as a text, such as `folders.where(folders.size > 9)`; see `View`. The connection needs `texts`. */
  liveText(text, options = {}) {
    return this.#begin({ text }, options);
  }

  #begin(query, options) {
    const view = new View(this, `q${++this.#count}`, query, options);
    if (options.onChange) view.subscribe(() => options.onChange(view));
    this.#views.set(view.id, view);
    if (this.#name !== null) this.#change("open", view.id);
    else if (!this.#running) this.#run();
    return view;
  }

  /** Close all queries, and with them the connection. */
  close() {
    for (const view of [...this.#views.values()]) view.close();
  }

  /** End the present connection and try another one, for a caller that knows that the server does not answer. */
  drop() {
    this.#abort?.abort();
  }

  /** Try at once instead of waiting for the next attempt. */
  retry() {
    this.#wake();
  }

  /** @internal */
  remove(view) {
    if (!this.#views.delete(view.id)) return;
    if (this.#name !== null && this.#sent.has(view.id)) this.#change("close", view.id);
    if (!this.#views.size) {
      this.#abort?.abort();
      this.#wake();
    }
  }

  /** @internal */
  moveWindow(view) {
    if (this.#name !== null && this.#sent.has(view.id)) this.#change("window", view.id);
    else view.whole = false; // a resumed connection would continue with the former window
  }

  async #run() {
    this.#running = true;
    let failures = 0;
    while (this.#views.size) {
      try {
        await this.#stream(() => (failures = 0));
      } catch (error) {
        if (error instanceof QueryError) {
          for (const view of [...this.#views.values()]) this.#end(view, error);
        }
      }
      this.#name = null;
      this.#sent.clear();
      for (const view of this.#views.values()) view.takeState("offline");
      if (!this.#views.size) break;
      const ms = Math.min(MAX_RETRY_MS, this.#retryMs * 2 ** failures++) * (0.5 + Math.random() / 2);
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, ms);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    this.#running = false;
    this.#lastId = null;
    if (this.#views.size) this.#run(); // one was opened meanwhile
  }

  /** Read one connection to its end. */
  async #stream(isUp) {
    const abort = (this.#abort = new AbortController());
    const resumed = [...this.#views.values()].filter((view) => view.whole && this.#lastId !== null);
    const parameters = new URLSearchParams();
    const sent = new Set();
    let size = 0;
    for (const view of resumed.length ? resumed : this.#views.values()) {
      const text = stringify(asked(view));
      if ((size += encodeURIComponent(text).length) > MAX_QUERY_CHARS && sent.size) break;
      parameters.append("query", text);
      sent.add(view.id);
    }
    if (resumed.length) parameters.set("last_event_id", this.#lastId);
    let timer = null;
    let heartbeatS = HEARTBEAT_S;
    const within = (ms) => {
      clearTimeout(timer);
      timer = setTimeout(() => abort.abort(), ms);
    };
    const alive = () => within(heartbeatS * 3_000);
    try {
      within(ANSWER_MS);
      const answer = await this.#request(`${this.#path}?${parameters}`, { signal: abort.signal });
      alive();
      if (!answer.ok) await refuse(answer);
      await readEvents(answer.body, alive, (id, event, data) => {
        if (event === "hello") {
          heartbeatS = data.heartbeat_s ?? HEARTBEAT_S;
          isUp();
          this.#opened(data.connection, sent);
        } else if (event === "bye") abort.abort();
        else this.#take(event, data);
        if (id) this.#lastId = id;
      });
    } finally {
      clearTimeout(timer);
      abort.abort();
    }
  }

  /** The server has named the connection: ask it for the queries that did not fit into the URL. */
  #opened(name, sent) {
    this.#name = name;
    this.#sent = sent;
    for (const id of sent) {
      const view = this.#views.get(id);
      if (view === undefined) this.#change("close", id);
      else if (view.whole) view.takeState("complete");
    }
    for (const view of this.#views.values()) {
      if (sent.has(view.id)) continue;
      view.whole = false; // patches of this connection do not follow its rows
      this.#change("open", view.id);
    }
  }

  #take(event, data) {
    if (event === "patch") {
      const views = [...this.#views.values()]; // all are at the version before a listener is called
      for (const tell of views.map((view) => view.takePatch(data.queries[view.id], data.version))) tell?.();
      return;
    }
    const view = this.#views.get(data.query);
    if (view === undefined) return;
    if (event === "snapshot") view.takeSnapshot(data);
    else if (event === "state") view.takeState(data.state);
    else if (event === "error") this.#end(view, new QueryError(data.error.message, data.error.code));
  }

  #end(view, error) {
    this.#views.delete(view.id);
    view.takeState("error", error);
    if (!this.#views.size) this.#abort?.abort();
  }

  /** Request changes of the open queries; all changes of one turn of the event loop are one request. */
  #change(kind, id) {
    if (this.#pending === null) {
      this.#pending = { open: new Set(), close: new Set(), window: new Set() };
      queueMicrotask(() => {
        const { open, close, window } = this.#pending;
        this.#pending = null;
        const views = (ids) => [...ids].map((each) => this.#views.get(each)).filter(Boolean);
        const opened = views(open);
        const body = {
          open: opened.map(asked),
          close: [...close].filter((each) => !open.has(each)),
          window: views(window)
            .filter((view) => !open.has(view.id))
            .map(({ id: own, skip, limit }) => ({ id: own, skip, limit })),
        };
        const name = this.#name;
        for (const view of opened) this.#sent.add(view.id);
        if (name !== null && body.open.length + body.close.length + body.window.length)
          this.#posts = this.#posts.then(() => this.#post(name, body));
      });
    }
    if (kind === "close" && this.#pending.open.delete(id)) return;
    this.#pending[kind].add(id);
  }

  async #post(name, body) {
    if (name !== this.#name) return;
    try {
      const headers = { "Content-Type": "application/json" };
      const signal = AbortSignal.timeout(ANSWER_MS);
      const answer = await this.#request(`/v1/live/${name}`, { method: "POST", headers, body: stringify(body), signal });
      if (answer.ok) return;
      if (answer.status !== 404 && answer.status < 500) await refuse(answer, true);
    } catch (error) {
      if (error instanceof QueryError) {
        for (const { id } of [...body.open, ...body.window]) {
          const view = this.#views.get(id);
          if (view !== undefined) this.#end(view, error);
        }
        return;
      }
    }
    if (name === this.#name) this.#abort?.abort(); // the connection or the network is gone: connect anew
  }

  #request(path, { headers = {}, ...options }) {
    const shown = this.#token ? { Authorization: `Bearer ${this.#token}` } : {};
    return this.#fetch(this.#url + path, { cache: "no-store", headers: { ...headers, ...shown }, ...options });
  }
}

function asked({ id, name, args, text, windowed, skip, limit }) {
  const query = text === undefined ? { id, name, args } : { id, text };
  return windowed ? { ...query, skip, limit } : query;
}

/** Throw the refusal of the server: a QueryError if it is `final`, another error if a later request may succeed. */
async function refuse(answer, final = FATAL.has(answer.status)) {
  const text = await answer.text().catch(() => "");
  let said = {};
  try {
    said = JSON.parse(text);
  } catch {
    // not of our server, or no JSON
  }
  const message = said.error ?? (text.slice(0, 200) || answer.statusText);
  if (final) throw new QueryError(message, said.code ?? `HTTP_${answer.status}`);
  throw new Error(message);
}

/** Read the events of a body: `take(id, event, data)` is called for each event, `alive()` whenever bytes arrive. */
async function readEvents(body, alive, take) {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let parts = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    const text = decoder.decode(value, { stream: true });
    if (!text.includes("\n")) {
      parts.push(text);
      continue;
    }
    const whole = parts.join("") + text;
    const end = whole.lastIndexOf("\n\n");
    if (end < 0) {
      parts = [whole];
      continue;
    }
    parts = [whole.slice(end + 2)];
    for (const block of whole.slice(0, end).split("\n\n")) takeEvent(block, take);
  }
}

function takeEvent(block, take) {
  const fields = { id: "", event: "message", data: "" };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
  }
  if (fields.data) take(fields.id, fields.event, parse(fields.data));
}

const connections = new Map();

/** A live query: see `View`. Queries of one server and token share a connection. */
export function live(url, name, args = {}, { token, ...options } = {}) {
  const key = `${url} ${token ?? ""}`;
  let connection = connections.get(key);
  if (connection === undefined) connections.set(key, (connection = new Connection(url, { token })));
  return connection.live(name, args, options);
}
