// event-reduce over one query: documents with kind > 0, sorted by (rank, id), the first `limit` of them.
//
// Reads a file {limit, rows, edits: {name: [{op, row}]}} and prints, by name, microseconds of processor time for an edit,
// the number of re-queries, and the ids of the result after the edits. A re-query is one pass that keeps the first rows.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [file, installed] = process.argv.slice(2);
const { calculateActionName, runAction } = createRequire(installed + "/")("event-reduce-js");
const { limit, rows, edits } = JSON.parse(readFileSync(file, "utf8"));

const compare = (a, b) => a.rank - b.rank || a.id - b.id;
const matches = (row) => row.kind > 0;
const params = { primaryKey: "id", sortFields: ["rank", "id"], limit, queryMatcher: matches, sortComparator: compare };
const table = new Map(rows.map((row) => [row.id, row]));

function requery() {
  const found = [];
  for (const row of table.values()) {
    if (!matches(row) || (found.length === limit && compare(row, found[limit - 1]) > 0)) continue;
    let at = found.length;
    while (at > 0 && compare(row, found[at - 1]) < 0) at -= 1;
    found.splice(at, 0, row);
    if (found.length > limit) found.pop();
  }
  return found;
}

let results = requery();
let byId = new Map(results.map((row) => [row.id, row]));
let requeries = 0;

function take({ op, row }) {
  const previous = table.get(row.id);
  if (op === "DELETE") table.delete(row.id);
  else table.set(row.id, row);
  const operation = op === "UPDATE" && previous === undefined ? "INSERT" : op;
  const event = { operation, id: row.id, doc: op === "DELETE" ? null : row, previous: previous ?? null };
  const input = { queryParams: params, changeEvent: event, previousResults: results, keyDocumentMap: byId };
  const action = calculateActionName(input);
  if (action === "runFullQueryAgain") {
    requeries += 1;
    results = requery();
    byId = new Map(results.map((each) => [each.id, each]));
  } else if (action !== "doNothing") {
    results = runAction(action, params, event, results, byId);
  }
}

const found = {};
for (const [name, all] of Object.entries(edits)) {
  requeries = 0;
  const begun = process.cpuUsage();
  for (const edit of all) take(edit);
  const used = process.cpuUsage(begun);
  found[name] = { us: (used.user + used.system) / all.length, requeries, ids: results.map((row) => row.id) };
}
console.log(JSON.stringify(found));
