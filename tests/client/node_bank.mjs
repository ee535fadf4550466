/** Opens, closes and moves queries at random, and prints what they show exactly: node node_bank.mjs URL ORDER. */

import { Connection } from "../../eddy/serve/page/client.js";

const { seed, actions, accounts } = JSON.parse(process.argv[3]);
const connection = new Connection(process.argv[2], { retryMs: 10 });
const views = new Map();
const printed = new Map();
let state = seed;

/** A number from 0 to below `n`. */
function draw(n) {
  state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
  return Math.floor((state / 0x80000000) * n);
}

const choice = (list) => list[draw(list.length)];
const randomWindow = () => ({ skip: draw(4), limit: 1 + draw(8) });

/** All views, since a listener of one may look at others. */
function print() {
  for (const [view, { question, former }] of views) {
    if (!view.version?.exact || view.rows === null) continue;
    const line = JSON.stringify({ question, former, token: view.version.token, rows: view.rows });
    if (printed.get(view) === line) continue;
    printed.set(view, line);
    console.log(line);
  }
}

function open() {
  const name = choice(["log", "accounts", "of", "statements"]);
  const args = name === "of" ? { account: choice([...accounts]) } : {};
  const shown = draw(10) < 3 ? randomWindow() : {};
  const view = connection.live(name, args, shown);
  views.set(view, { question: { name, args, ...shown }, former: null });
  view.subscribe(print);
}

function close() {
  const view = choice([...views.keys()]);
  views.delete(view);
  view.close();
}

function move() {
  const view = choice([...views.keys()]);
  const { question, former } = views.get(view);
  if (former !== null) return;
  const shown = randomWindow();
  views.set(view, { question: { ...question, ...shown }, former: question });
  view.window(shown);
}

open();
for (let done = 0; done < actions; done++) {
  const action = draw(100);
  if (action < 50 && views.size < 6) open();
  else if (action < 75 && views.size > 1) close();
  else move();
  await new Promise((resolve) => setTimeout(resolve, draw(40)));
}
connection.close();
