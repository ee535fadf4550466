/** The version of rows: a token for later reads (`at_least`), and whether all tables are exactly at one cut. */
export interface Version {
  token: string;
  exact: boolean;
}

export type State = "connecting" | "complete" | "unknown" | "offline" | "error" | "closed";

/** The value of a JSON text. Integers that a number would round, beyond 2^53, are bigint. */
export function parse(text: string): any;

/** A value as JSON; a bigint is written as an integer. */
export function stringify(value: any, indent?: number): string;

/** A row of a query, with its nests under their names; integers beyond 2^53 are bigint. `$cycle` is true where a nest would lead back to itself. */
export type Row = { [column: string]: any; $cycle?: true };

export type Op =
  | { type: "insert" | "set"; bucket: string; index: number; row: Row; below?: Record<string, string | null> }
  | { type: "remove"; bucket: string; index: number }
  | { type: "move"; bucket: string; before: number; index: number }
  | { type: "drop"; bucket: string };

export interface Entry<R = Row> {
  readonly row: R;
  /** The id of the bucket below, for each nest; null where there is none. */
  readonly below: Readonly<Record<string, string | null>>;
}

/** One level of a view: how its buckets become nested rows. Level 0 is the root's. */
export interface LevelShape {
  nests?: Record<string, number>;
  one?: boolean;
  empty?: Row | null;
  value?: string | null;
  columns?: string[] | null;
  pluck?: string | null;
  is_plucked?: boolean;
  key?: string[];
}

export interface Window {
  skip?: number;
  /** null: all rows. A window replaces the limit and the skip of the query itself. */
  limit?: number | null;
}

export interface LiveOptions<T = any> extends Window {
  /** Called after each change, beside the listeners of `subscribe`. */
  onChange?: (view: View<T>) => void;
}

export interface ConnectionOptions {
  /** Shown as `Authorization: Bearer …`. */
  token?: string;
  /** Whether queries may also be texts, where the server lets this caller read the tables themselves. */
  texts?: boolean;
  fetch?: typeof fetch;
  /** The first pause before the client connects again; each further pause is twice as long, up to 30 seconds. */
  retryMs?: number;
}

export class QueryError extends Error {
  code: string;
}

/** A query that is kept up to date. `T` is the type of `rows`: of a list by default. */
export class View<T = Row[]> {
  readonly id: string;
  readonly name: string;
  readonly args: Readonly<Record<string, unknown>>;
  /** The text of a query that was opened by `liveText`; such a query has no name and no args. */
  readonly text: string | undefined;
  readonly skip: number;
  readonly limit: number | null;
  readonly state: State;
  readonly error: QueryError | null;
  readonly version: Version | null;
  /** The id of the bucket at the top, for `entries`. */
  readonly root: string;
  readonly shape: LevelShape[] | null;
  /** Resolves when the first rows are here; rejects where the server refuses the query. */
  readonly ready: Promise<View<T>>;
  /** The rows with their nests, null before the first are here. Parts that have not changed are the same objects as before. */
  readonly rows: T | null;
  entries(bucket: string): readonly Entry[];
  subscribe: (listener: (changedBuckets: string[]) => void) => () => void;
  window(window: Window): void;
  close(): void;
}

/** One connection to a server, for any number of queries. */
export class Connection {
  constructor(url: string | URL, options?: ConnectionOptions);
  live<T = Row[]>(name: string, args?: Record<string, unknown>, options?: LiveOptions<T>): View<T>;
  /** Open a query that is given as a text. The connection needs `texts`. */
  liveText<T = Row[]>(text: string, options?: LiveOptions<T>): View<T>;
  retry(): void;
  close(): void;
}

/** The buckets of a view, made of patches alone. */
export class Buckets {
  readonly size: number;
  entries(id: string): readonly Entry[];
  apply(ops: readonly Op[]): string[];
  nested(root: string, shape: readonly LevelShape[], maxRows?: number): any;
}

/** Open a named query of the table server at `url`. Queries of one server and token share a connection. */
export function live<T = Row[]>(
  url: string | URL,
  name: string,
  args?: Record<string, unknown>,
  options?: LiveOptions<T> & { token?: string },
): View<T>;
