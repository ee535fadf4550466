/** Records of topics: dead letters, and the record of a row. */

import { card, dim, make, number, span } from "./elements.js";

const pre = (label, content) => make("pre", { tabindex: "0", role: "region", "aria-label": label }, textOf(content));

/** Bytes of a record as text; of long bytes only the beginning. */
function textOf(content) {
  if (content === null) return "null";
  const text = content.text ?? content.hex.replace(/../g, "$& ").trim();
  const shown = content.text === undefined ? content.hex.length / 2 : new TextEncoder().encode(text).length;
  return shown < content.size ? `${text}… (${number(content.size)} bytes)` : text;
}

const timeOf = (timestamp) => new Date(timestamp).toISOString().replace("T", " ").replace("Z", " UTC");

/** A record with its time, key, value and headers. */
function recordOf({ topic, partition, offset, timestamp, key, value, headers }) {
  return [
    make("dl", { class: "left" }, ...[["time", timeOf(timestamp)], ["topic", topic], ["partition", partition], ["offset", offset], ...headers.map(([name, content]) => [name, textOf(content)])]
      .flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, String(text))])),
    dim("key"), pre("key", key), dim("value"), pre("value", value),
  ];
}

/** The dead letters of the application, the latest first. */
export async function showLetters(main, page) {
  const list = make("div", {});
  const note = make("p", { class: "bar", role: "status" });
  const more = make("button", { type: "button", hidden: "" }, "Earlier ones");
  let before = null;
  const load = async () => {
    const found = await page.ask(`v1/dead-letters${before === null ? "" : `?before=${before}`}`);
    before = found.before;
    list.append(...found.letters.map((letter) => letterOf(letter)));
    more.hidden = before === null;
    note.replaceChildren(list.children.length ? `${number(list.children.length)} shown${before === null ? ", which is all" : ""}.` : `There are no records in ${found.topic}.`);
  };
  more.addEventListener("click", () => load().catch((error) => note.replaceChildren(span("error", error.message))));
  main.replaceChildren(make("h1", {}, "Dead letters"), dim("Records that the application rejected under --on-error dead-letter, the latest first."), list, note, more);
  await load();
}

/** A dead letter: the error and the place of its record; a click opens the rest. */
function letterOf(letter) {
  const headers = new Map(letter.headers.map(([name, content]) => [name, textOf(content)]));
  const from = headers.has("eddy.topic") ? `${headers.get("eddy.topic")} partition ${headers.get("eddy.partition")} offset ${headers.get("eddy.offset")}` : (headers.get("eddy.step") ?? headers.get("eddy.loop") ?? "");
  const title = make("summary", {}, `${timeOf(letter.timestamp)} · ${from} · key ${textOf(letter.key)}`);
  return card(make("p", { class: "error" }, headers.get("eddy.error") ?? ""), make("details", {}, title, ...recordOf(letter)));
}

/** The record of a source table's row, which is searched when the user asks for it. */
export function sourceRecord(page, table, key) {
  const place = make("div", { class: "record" });
  const button = make("button", { type: "button" }, "Its record");
  let before = {};
  let searched = 0;
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const found = await page.ask(`v1/records/${encodeURIComponent(table)}?key=${encodeURIComponent(key)}&before=${encodeURIComponent(JSON.stringify(before))}`);
      searched += found.searched;
      if (found.record) place.replaceChildren(make("h2", {}, "Record"), found.agrees ? "" : make("p", { class: "error" }, "The row has another value: the application has rejected this record, or the row has changed since."), ...recordOf(found.record));
      else if (found.before === null) place.replaceChildren(dim(`None of the ${number(searched)} records that are left in the topic has this key.`));
      else {
        before = found.before;
        button.textContent = "Go on";
        place.replaceChildren(dim(`Not among the latest ${number(searched)} records.`), button);
      }
    } catch (error) {
      place.replaceChildren(span("error", error.message), button);
    }
    button.disabled = false;
  });
  place.append(button);
  return place;
}
