/** Follows a named query of a server and prints its rows as JSON once they hold a version: node node_view.mjs URL NAME. */

import { createInterface } from "node:readline";

import { live } from "../../eddy/serve/page/client.js";

const [url, name] = process.argv.slice(2);
const view = live(url, name);
const seen = { snapshots: 0, offline: 0 };
let state = "";
view.subscribe(() => {
  if (view.state === "offline" && state !== "offline") seen.offline++;
  state = view.state;
});
await view.ready;
console.log("ready");
for await (const wanted of createInterface({ input: process.stdin })) {
  while (!JSON.stringify(view.rows).includes(wanted)) await new Promise((resolve) => {
    const stop = view.subscribe(() => resolve(stop()));
  });
  console.log(JSON.stringify({ rows: view.rows, offline: seen.offline, state: view.state }));
}
view.close();
