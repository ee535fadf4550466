/** A box for SQL over the tables, and for named live queries, with completion. */

import { card, dim, make, number, shown, span } from "./elements.js";
import { followView } from "./queries.js";

const LISTED = 20; // columns of a table that are listed
const WORDS = "SELECT FROM WHERE GROUP BY ORDER BY HAVING LIMIT JOIN LEFT JOIN ON USING AS AND OR NOT IN EXISTS IS NULL LIKE BETWEEN CASE WHEN THEN ELSE END DISTINCT UNION ALL EXCEPT INTERSECT WITH RECURSIVE WITH MUTUALLY RECURSIVE VALUES count(*) sum( avg( min( max( coalesce( DESC".match(/(?:(?:WITH|MUTUALLY|GROUP|ORDER|LEFT) )*\S+/g);
const MOST = 8;
const NAMED = /^\s*(\w+)\s*\(([^()]*)\)\s*$/;
const IS_SQL = /^\s*(?:--|\/\*|\(*\s*(?:select|with|values|from|explain|table|describe|show)\b(?!\s*[.[]))/i;
const IS_LIVE = /^\s*[^\W\d]\w*\s*(?:[.[(]|$)/u;
const METHODS = "where( order_by( limit( skip( select( nest( pluck( exists() group_by( aggregate( count( sum( min( max( avg( one() is_in( like( ilike( is_null()".split(" ");
const FROM = /\b(?:from|join)\s+("(?:[^"]|"")+"|\w+)(?:\s+(?:as\s+)?(\w+))?/gi;
const named = (name) => (/^[a-z_]\w*$/.test(name) ? name : `"${name.replace(/"/g, '""')}"`);

/** The words that may continue `text`, the part of `whole` before the cursor: columns after `table.`, tables after FROM, else all. */
function completions(text, whole, tables, queries) {
  const [, owner, start] = /(?:("(?:[^"]|"")*"|\w+)\.)?("?[^\s"(),.=<>]*)$/.exec(text);
  const columns = (of) => tables.filter(({ name }) => of.has(named(name))).flatMap((table) => table.columns.map(({ name }) => named(name)));
  const used = new Map([...whole.matchAll(FROM)].flatMap(([, table, alias]) => [[table, table], [alias, table]]));
  const isTable = /\b(?:from|join)\s+"?[^\s"]*$/i.test(text);
  const names = tables.map(({ name }) => named(name));
  const isOfQuery = !IS_SQL.test(whole) && /\)\.[^\s.(]*$/.test(text);
  const all = isOfQuery ? [...METHODS] : owner ? columns(new Set([used.get(owner) ?? owner])) : isTable ? names : [...columns(new Set(used.size ? used.values() : names)), ...names, ...WORDS, ...queries.map(({ name }) => `${name}(`)];
  if (owner && !IS_SQL.test(whole)) all.push(...METHODS);
  const low = start.toLowerCase().replace(/^"/, "");
  const found = [...new Set(all)].filter((each) => each.toLowerCase().replace(/^"/, "").startsWith(low) && each !== start);
  return { start, found: start || owner || isTable || isOfQuery ? found.slice(0, MOST) : [] };
}

/** Show the box. A query in the parameter `sql` of the address is run at once. */
export async function showSql(main, page, parameters) {
  const [{ tables }, { queries = [] }] = await Promise.all([page.ask("v1/sql"), page.ask("v1/queries", { also: [404] })]);
  if (!main.isConnected) return; // another page is shown by now
  const box = make("textarea", { id: "sql", rows: "6", spellcheck: "false", autocapitalize: "off", "aria-autocomplete": "list", "aria-controls": "completions" }, parameters.get("sql") ?? "");
  const list = make("div", { id: "completions", role: "listbox", "aria-label": "Completions", class: "bar" });
  const place = make("div", { "aria-live": "polite" });
  let start = "";
  let found = [];
  let at = -1;
  const draw = () => {
    list.replaceChildren(...found.map((each, index) => make("span", { role: "option", id: `completion-${index}`, "aria-selected": String(index === at) }, each)));
    box.setAttribute("aria-activedescendant", at < 0 ? "" : `completion-${at}`);
  };
  const close = () => ([found, at] = [[], -1], draw());
  const take = (word) => {
    box.setRangeText(word, box.selectionStart - start.length, box.selectionStart, "end");
    close();
    box.focus();
  };
  box.addEventListener("input", () => {
    ({ start, found } = completions(box.value.slice(0, box.selectionStart), box.value, tables, queries));
    at = -1;
    draw();
  });
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
    else if (!found.length) return;
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      at = (at + (event.key === "ArrowDown" ? 1 : found.length + (at < 0))) % found.length;
      draw();
    } else if (event.key === "Escape") close();
    else if ((event.key === "Tab" && !event.shiftKey) || (event.key === "Enter" && at >= 0)) take(found[Math.max(at, 0)]);
    else return;
    event.preventDefault();
  });
  list.addEventListener("click", ({ target }) => target.matches("span") && take(target.textContent));
  const choose = (message) => {
    const [, line, column] = /line (\d+), column (\d+)/.exec(message) ?? [];
    if (!line) return;
    const from = box.value.split("\n").slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, Number(column) - 1);
    box.focus();
    box.setSelectionRange(from, from + (/^\w*/.exec(box.value.slice(from))[0].length || 1));
  };
  let end = () => {};
  page.leaving(() => end());
  const showLive = () => {
    const rows = card(dim("Connecting …"));
    const note = make("p", { class: "bar", role: "status" });
    const button = make("button", { type: "button" }, "Close");
    end = followView(page.liveText(box.value), { name: "Rows of the query", place: rows, note, failed: ({ message }) => (button.remove(), choose(message)) });
    button.addEventListener("click", () => {
      end();
      button.remove();
      note.replaceChildren(span("dot bad", "closed"));
    });
    place.replaceChildren(rows, note, button);
  };
  const run = async () => {
    close();
    end();
    const live = NAMED.exec(box.value);
    if (live && queries.some(({ name }) => name === live[1])) {
      const given = live[2].split(",").filter((each) => each.trim()).map((each) => /^\s*(\w+)\s*=\s*(?:'(.*)'|"(.*)"|(.*?))\s*$/.exec(each) ?? []);
      location.hash = `#/queries/${live[1]}?${new URLSearchParams(given.map(([, name, ...values]) => [name ?? "?", values.find((value) => value !== undefined) ?? ""]))}`;
      return;
    }
    history.replaceState(null, "", `#/sql?${new URLSearchParams({ sql: box.value })}`);
    if (IS_LIVE.test(box.value) && !IS_SQL.test(box.value)) {
      showLive();
      return;
    }
    place.replaceChildren(dim("Asking …"));
    try {
      place.replaceChildren(...answerOf(await page.ask("v1/sql", { body: { sql: box.value } })));
    } catch (error) {
      place.replaceChildren(make("p", { class: "error" }, error.message));
      choose(error.message);
    }
  };
  const form = make("form", { class: "sql" }, make("label", { for: "sql" }, "SQL, or a live query such as tree() or folders.where(folders.size > 9)", box), make("button", {}, "Run"));
  form.addEventListener("submit", (event) => (event.preventDefault(), run()));
  const known = tables.map(({ name, columns }) => make("p", {}, named(name), span("dim", ` (${columns.slice(0, LISTED).map((column) => `${named(column.name)} ${column.type}`).join(", ")}${columns.length > LISTED ? `, … ${columns.length - LISTED} more` : ""})`)));
  main.replaceChildren(make("h1", {}, "SQL"), make("div", { class: "columns" }, make("div", {}, card(form, list), place), card(make("h2", {}, "Tables"), ...known)));
  if (box.value) run();
}

function answerOf({ answer: { columns, types, rows, count }, exact }) {
  const kind = types.map((type) => (/int|numeric|real|double/.test(type) ? "number" : null));
  return [
    make("p", { class: "bar" }, `${number(count)} ${count === 1 ? "row" : "rows"}${count > rows.length ? `, of which the first ${number(rows.length)} are shown` : ""}; ${exact ? "exact" : "committed, not exact"}`),
    make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Answer" }, make("table", {},
      make("thead", {}, make("tr", {}, ...columns.map((column, index) => make("th", { scope: "col", class: kind[index] }, column)))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((value, index) => make("td", { class: kind[index] }, value === null ? span("dim", "NULL") : shown(value)))))))),
  ];
}
