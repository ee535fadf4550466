/** The client on Node: patches against the engine's own answers, and a connection that is refused, broken and resumed. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { once } from "node:events";
import { after, test } from "node:test";

import { Buckets, Connection, live, parse, stringify } from "../../eddy/serve/page/client.js";

const vectors = process.env.EDDY_VECTORS ? JSON.parse(readFileSync(process.env.EDDY_VECTORS, "utf8")) : [];

test("rows of patches are those of the engine, for any query", { skip: !vectors.length && "no vectors" }, () => {
  for (const { query, root, shape, steps } of vectors) {
    const buckets = new Buckets();
    const again = new Buckets(); // read at the end only, so that nothing was kept in between
    for (const { ops, rows } of steps) {
      buckets.apply(ops);
      again.apply(ops);
      assert.deepEqual(buckets.nested(root, shape), rows, query);
    }
    assert.deepEqual(again.nested(root, shape), steps.at(-1).rows, query);
  }
});

const TREE = [{ nests: { children: 1 } }, { nests: { children: 1 } }];
const node = (id) => ({ row: { id }, below: { children: `c["${id}"]` } });
const insert = (bucket, index, id) => ({ type: "insert", bucket, index, ...node(id) });

test("parts that have not changed are the same objects", () => {
  const buckets = new Buckets();
  buckets.apply([insert("", 0, "a"), insert("", 1, "b"), insert('c["a"]', 0, "x"), insert('c["b"]', 0, "y")]);
  const old = buckets.nested("", TREE);
  buckets.apply([insert('c["x"]', 0, "deep")]);
  const now = buckets.nested("", TREE);
  assert.equal(now[0].children[0].children[0].id, "deep");
  assert.notEqual(now, old);
  assert.notEqual(now[0], old[0]);
  assert.equal(now[1], old[1]);
  assert.equal(old[0].children[0].children.length, 0);
  assert.equal(buckets.nested("", TREE), now);
});

test("a tree as deep as a chain of 50,000 is nested", () => {
  const buckets = new Buckets();
  buckets.apply([insert("", 0, 0)]);
  for (let at = 0; at < 50_000; at++) buckets.apply([insert(`c["${at}"]`, 0, at + 1)]);
  let depth = 0;
  for (let rows = buckets.nested("", TREE); rows.length; rows = rows[0].children) depth++;
  assert.equal(depth, 50_001);
});

test("many operations on one bucket are one pass, with the same result", () => {
  const few = new Buckets();
  const many = new Buckets();
  const shape = [{}];
  const ops = Array.from({ length: 500 }, (_, index) => ({ type: "insert", bucket: "", index, row: { id: index } }));
  many.apply(ops);
  for (const op of ops) few.apply([op]);
  const moves = Array.from({ length: 200 }, (_, at) => ({ type: "move", bucket: "", before: at * 2, index: 499 - at }));
  many.apply([...moves, { type: "remove", bucket: "", index: 1 }].map((op) => ({ ...op, index: op.type === "move" ? op.index - 1 : 1 })));
  const expected = few.nested("", shape).filter(({ id }) => id >= 400 ? id !== 1 : id % 2 === 1 && id !== 1);
  const moved = Array.from({ length: 200 }, (_, at) => ({ id: (199 - at) * 2 }));
  assert.deepEqual(many.nested("", shape), [...expected, ...moved]);
});

test("integers beyond 2^53 are whole, in and out, and nothing else changes", () => {
  const text =
    '{"large":9223372036854775807,"low":-9007199254740993,"safe":9007199254740991,"half":1234567890123456.5,"far":1e30,' +
    '"text":"9223372036854775807 \\"9223372036854775807","list":[[18446744073709551615]]}';
  const value = parse(text);
  assert.equal(value.large, 9223372036854775807n);
  assert.equal(value.low, -9007199254740993n);
  assert.equal(value.safe, 9007199254740991);
  assert.equal(value.half, 1234567890123456.5);
  assert.equal(value.far, 1e30);
  assert.equal(value.text, '9223372036854775807 "9223372036854775807');
  assert.deepEqual(value.list, [[18446744073709551615n]]);
  assert.equal(stringify(value), text.replace("1e30", "1e+30"));
  assert.equal(stringify({ a: 1 }, 2), JSON.stringify({ a: 1 }, null, 2));
  assert.equal(stringify("int-5-5"), '"int-5-5"');
});

/** A server of the protocol's form, whose answers the test gives one by one. */
class Peer {
  requests = [];
  posts = [];
  /** The status of answers to changes. */
  status = 204;
  #waiting = [];
  #posted = [];

  static async start() {
    const peer = new Peer();
    peer.server = createServer(async (request, response) => {
      const url = new URL(request.url, "http://localhost");
      if (request.method === "POST") {
        let text = "";
        for await (const part of request) text += part;
        peer.posts.push([url.pathname, JSON.parse(text)]);
        response.writeHead(peer.status).end();
        peer.#posted.shift()?.();
        return;
      }
      const queries = url.searchParams.getAll("query").map((each) => JSON.parse(each));
      const found = { queries, last: url.searchParams.get("last_event_id"), headers: request.headers, response };
      peer.requests.push(found);
      peer.#waiting.shift()?.(found);
    });
    peer.server.listen(0, "127.0.0.1");
    await once(peer.server, "listening");
    peer.url = `http://127.0.0.1:${peer.server.address().port}`;
    after(() => {
      peer.server.closeAllConnections();
      peer.server.close();
    });
    return peer;
  }

  /** The next connection of the client. */
  next() {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  posted() {
    return new Promise((resolve) => this.#posted.push(resolve));
  }
}

function say(response, event, data, id) {
  if (!response.headersSent) response.writeHead(200, { "Content-Type": "text/event-stream" });
  response.write(`${id ? `id: ${id}\n` : ""}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
}

const hello = (response, name = "c1") => say(response, "hello", { connection: name, server: "s", heartbeat_s: 5 });
const version = (token) => ({ token, exact: true });
const SHAPE = { root: "", shape: [{}] };
const row = (index, id) => ({ type: "insert", bucket: "", index, row: { id } });
const changed = (view) => new Promise((resolve) => view.subscribe(resolve));

async function until(view, holds) {
  while (!holds()) await changed(view);
}

test("a view follows patches, resumes where it was, and shows no rows twice", async () => {
  const peer = await Peer.start();
  const connection = new Connection(peer.url, { retryMs: 1, token: "secret" });
  const first = peer.next();
  const view = connection.live("names", { of: "a" });
  const one = await first;
  assert.equal(one.headers.authorization, "Bearer secret");
  assert.deepEqual(one.queries, [{ id: view.id, name: "names", args: { of: "a" } }]);
  assert.equal(one.last, null);
  hello(one.response);
  say(one.response, "snapshot", { query: view.id, version: version("v1"), ops: [row(0, "a")], more: true, ...SHAPE }, "v1");
  say(one.response, "snapshot", { query: view.id, version: version("v1"), ops: [row(1, "c")] }, "v1");
  assert.equal(await view.ready, view);
  assert.deepEqual(view.rows, [{ id: "a" }, { id: "c" }]);
  const second = peer.next();
  say(one.response, "patch", { version: version("v2"), queries: { [view.id]: [row(1, "b")] } }, "v2");
  await until(view, () => view.version.token === "v2");
  one.response.destroy();
  await until(view, () => view.state === "offline");
  assert.equal(view.rows.length, 3); // they stay while there is no connection
  const two = await second;
  assert.equal(two.last, "v2");
  hello(two.response, "c2");
  say(two.response, "patch", { version: version("v3"), queries: { [view.id]: [{ type: "remove", bucket: "", index: 0 }] } }, "v3");
  await until(view, () => view.version.token === "v3");
  assert.deepEqual([view.state, view.rows], ["complete", [{ id: "b" }, { id: "c" }]]);
  const third = peer.next();
  say(two.response, "bye", { reason: "shutdown" });
  const three = await third;
  hello(three.response);
  say(three.response, "snapshot", { query: view.id, version: version("w1"), ops: [row(0, "z")], ...SHAPE }, "w1");
  await until(view, () => view.version.token === "w1");
  assert.deepEqual(view.rows, [{ id: "z" }]); // another server process: nothing of the old rows is left
  view.close();
  assert.equal(view.state, "closed");
});

test("a connection that breaks within a snapshot asks for it again", async () => {
  const peer = await Peer.start();
  const connection = new Connection(peer.url, { retryMs: 1 });
  const first = peer.next();
  const view = connection.live("names");
  const one = await first;
  hello(one.response);
  const second = peer.next();
  say(one.response, "snapshot", { query: view.id, version: version("v1"), ops: [row(0, "a")], more: true, ...SHAPE }, "v1");
  one.response.end();
  const two = await second;
  assert.equal(two.last, null);
  hello(two.response);
  say(two.response, "snapshot", { query: view.id, version: version("v1"), ops: [row(0, "a")], ...SHAPE }, "v1");
  await view.ready;
  assert.deepEqual(view.rows, [{ id: "a" }]);
  connection.close();
});

test("many queries share a connection; they are opened, moved and closed by requests", async () => {
  const peer = await Peer.start();
  const first = peer.next();
  const one = live(peer.url, "a");
  const { response } = await first;
  hello(response, "shared");
  say(response, "snapshot", { query: one.id, version: version("v1"), ops: [], ...SHAPE }, "v1");
  await one.ready;
  let posted = peer.posted();
  const two = live(peer.url, "b", { n: 1 }, { limit: 10 });
  const three = live(peer.url, "c");
  three.close();
  await posted;
  const asked = { id: two.id, name: "b", args: { n: 1 }, skip: 0, limit: 10 };
  assert.deepEqual(peer.posts, [["/v1/live/shared", { open: [asked], close: [], window: [] }]]);
  posted = peer.posted();
  two.window({ skip: 20, limit: 10 });
  one.close();
  await posted;
  const moved = { id: two.id, skip: 20, limit: 10 };
  assert.deepEqual(peer.posts[1][1], { open: [], close: [one.id], window: [moved] });
  assert.equal(peer.requests.length, 1);
  say(response, "error", { query: two.id, error: { code: "QUERY", message: "refused" } });
  await assert.rejects(two.ready, { name: "QueryError", code: "QUERY", message: "refused" });
  assert.equal(two.state, "error");
});

test("a change that is refused is the error of its query alone", async () => {
  const peer = await Peer.start();
  const first = peer.next();
  const connection = new Connection(peer.url);
  const one = connection.live("a");
  const two = connection.live("b");
  const { response } = await first;
  const posted = peer.posted(); // the second query
  hello(response);
  await posted;
  for (const { id } of [one, two]) say(response, "snapshot", { query: id, version: version("v"), ops: [], ...SHAPE }, "v");
  await two.ready;
  peer.status = 400;
  one.window({ skip: -1 });
  await until(one, () => one.state === "error");
  assert.equal(one.error.code, "HTTP_400");
  assert.equal(two.state, "complete");
  connection.close();
});

test("the version of a query that is opened anew is that of its rows", async () => {
  const peer = await Peer.start();
  let next = peer.next();
  const connection = new Connection(peer.url, { retryMs: 1 });
  const one = connection.live("a", { text: "a".repeat(7_000) });
  const two = connection.live("b", { text: "b".repeat(7_000) }); // the URL has no place for it
  const { response } = await next;
  const posted = peer.posted();
  hello(response);
  await posted;
  for (const { id } of [one, two]) say(response, "snapshot", { query: id, version: version("v1"), ops: [], ...SHAPE }, "v1");
  await two.ready;
  next = peer.next();
  response.end();
  const again = await next;
  assert.equal(again.last, "v1");
  hello(again.response, "c2");
  for (const token of ["v2", "v3"]) say(again.response, "patch", { version: version(token), queries: {} }, token);
  await until(one, () => one.version.token === "v3");
  assert.equal(two.version.token, "v1");
  connection.close();
});

test("while rows are unknown their version is that of before", async () => {
  const peer = await Peer.start();
  const next = peer.next();
  const connection = new Connection(peer.url, { retryMs: 1 });
  const [kept, other] = [connection.live("a"), connection.live("b")];
  const { response } = await next;
  hello(response);
  for (const { id } of [kept, other]) say(response, "snapshot", { query: id, version: version("v1"), ops: [], ...SHAPE }, "v1");
  await Promise.all([kept.ready, other.ready]);
  say(response, "state", { query: kept.id, state: "unknown" });
  say(response, "patch", { version: version("v2"), queries: {} }, "v2");
  await until(other, () => other.version.token === "v2");
  assert.equal(kept.version.token, "v1");
  say(response, "state", { query: kept.id, state: "complete" });
  say(response, "patch", { version: version("v3"), queries: { [kept.id]: [row(0, "a")] } }, "v3");
  await until(kept, () => kept.version.token === "v3");
  assert.deepEqual(kept.rows, [{ id: "a" }]);
  connection.close();
});

test("a refusal ends the queries, a server that is away does not", async () => {
  const peer = await Peer.start();
  let next = peer.next();
  const view = new Connection(peer.url, { retryMs: 1 }).live("names");
  (await next).response.writeHead(503).end("later");
  next = peer.next();
  (await next).response.destroy();
  next = peer.next();
  (await next).response.writeHead(401, { "Content-Type": "text/plain" }).end("a token is needed\n");
  await assert.rejects(view.ready, { code: "HTTP_401", message: "a token is needed\n" });
  assert.equal(view.state, "error");
});

test("text in many bytes may be cut anywhere between two reads", async () => {
  const peer = await Peer.start();
  const first = peer.next();
  const connection = new Connection(peer.url);
  const view = connection.live("names");
  const { response } = await first;
  hello(response);
  const text = `: heartbeat\n\nevent: snapshot\ndata: ${JSON.stringify({ query: view.id, version: version("v"), ops: [row(0, "größer 🌲")], ...SHAPE })}\n\n`;
  for (const byte of Buffer.from(text)) {
    response.write(Buffer.from([byte]));
    await new Promise((resolve) => setImmediate(resolve));
  }
  await view.ready;
  assert.deepEqual(view.rows, [{ id: "größer 🌲" }]);
  connection.close();
});
