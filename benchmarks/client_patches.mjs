/** How fast the JavaScript client applies patches to a tree: node client_patches.mjs NODES PATCHES. Prints JSON. */

import { Buckets } from "../eddy/serve/page/client.js";

const [nodes, patches] = process.argv.slice(2).map(Number);
const shape = [{ nests: { children: 0 }, key: ["id"] }];
const below = (id) => ({ children: `children["${id}"]` });
const row = (id, name) => ({ id: `n${id}`, name, size: id % 1_000 });

/** A tree of `nodes` nodes with up to ten children each. */
function snapshot() {
  const ops = [];
  for (let id = 0; id < nodes; id++) {
    const bucket = id ? `children["n${Math.floor((id - 1) / 10)}"]` : "";
    ops.push({ type: "insert", bucket, index: id ? (id - 1) % 10 : 0, row: row(id, `node ${id}`), below: below(`n${id}`) });
  }
  return ops;
}

/** Patches that rename a node, or take the last child of one and put it below another. */
function* changes() {
  let seed = 7;
  const draw = (n) => (seed = (seed * 48_271) % 2_147_483_647) % n;
  const parents = Math.floor((nodes - 1) / 10);
  for (let at = 0; at < patches; at++) {
    const id = 1 + draw(nodes - 1);
    const bucket = `children["n${Math.floor((id - 1) / 10)}"]`;
    if (at % 2) yield [{ type: "set", bucket, index: (id - 1) % 10, row: row(id, `new ${at}`), below: below(`n${id}`) }];
    else {
      const [one, other] = [draw(parents), draw(parents)].map((parent) => `children["n${parent}"]`);
      const moved = { row: row(nodes + at, "moved"), below: below(`n${nodes + at}`) };
      yield [{ type: "insert", bucket: one, index: 10, ...moved }];
      yield [{ type: "remove", bucket: one, index: 10 }, { type: "insert", bucket: other, index: 10, ...moved }];
      yield [{ type: "remove", bucket: other, index: 10 }];
    }
  }
}

function timed(work) {
  const start = performance.now();
  const count = work();
  return [(performance.now() - start) / 1_000, count];
}

const buckets = new Buckets();
const ops = snapshot();
const [applied_s] = timed(() => buckets.apply(ops));
const [nested_s] = timed(() => buckets.nested("", shape));
const all = [...changes()];
const apply = (read) => () => {
  for (const each of all) {
    buckets.apply(each);
    if (read) buckets.nested("", shape);
  }
  return all.length;
};
apply(false)();
const [unread_s, count] = timed(apply(false));
const [read_s] = timed(apply(true));
console.log(JSON.stringify({ nodes, applied_s, nested_s, unread: count / unread_s, read: count / read_s }));
