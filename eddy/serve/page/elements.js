/** Elements of the page, and values as text. */

import { stringify } from "./client.js";

/** An element with attributes and children; text is never markup. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes))
    if (value != null && value !== false) element.setAttribute(attribute, value);
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

export const span = (kind, text) => make("span", { class: kind }, text);
export const dim = (text) => make("p", { class: "dim" }, text);
export const card = (...children) => make("section", { class: "card" }, ...children);
export const number = (value) => (value === undefined ? "–" : (value % 1 ? Number(value.toPrecision(6)) : value).toLocaleString("en"));
export const shown = (value) => (typeof value === "string" ? value : stringify(value));
