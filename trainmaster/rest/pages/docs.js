// Shows openapi.json: every operation with its parameters, its body, its answers, and a form to try it.
"use strict";

const make = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};

let spec = {};

const resolve = (schema) => {
  if (!schema || !schema.$ref) return schema || {};
  return schema.$ref.split("/").slice(1).reduce((at, key) => at[key], spec);
};

const nameType = (schema) => {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(nameType).join(" or ");
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${nameType(schema.items || {})}`;
  return schema.type || "anything";
};

const bounds = (schema) => {
  const words = { minimum: "from", maximum: "to", minLength: "length from", maxLength: "length to", pattern: "pattern" };
  return Object.entries(words).filter(([key]) => schema[key] !== undefined).map(([key, word]) => `${word} ${schema[key]}`).join(", ");
};

const addFields = (table, schema, depth, seen) => {
  const full = resolve(schema);
  const required = new Set(full.required || []);
  for (const [name, field] of Object.entries(full.properties || {})) {
    const type = [nameType(field), bounds(field)].filter(Boolean).join(", ");
    const first = make("td", depth ? { class: "deep" } : {}, make("code", {}, name), required.has(name) ? " *" : "");
    const text = field.description || resolve(field).description || "";
    table.append(make("tr", {}, first, make("td", {}, type), make("td", {}, text)));
    const inner = [field, ...(field.anyOf || []), field.items || {}].find((one) => one.$ref);
    if (inner && !seen.has(inner.$ref)) addFields(table, inner, depth + 1, new Set([...seen, inner.$ref]));
  }
};

const showSchema = (schema) => {
  const table = make("table");
  addFields(table, schema, 0, new Set());
  return table.children.length ? table : make("p", {}, nameType(schema));
};

const findExample = (media) => {
  if (media.example) return media.example;
  if (media.examples) return Object.values(media.examples)[0].value;
  const schema = resolve(media.schema);
  return schema.examples ? schema.examples[0] : {};
};

const buildForm = (path, method, operation) => {
  const form = make("form");
  const inputs = {};
  for (const parameter of operation.parameters || []) {
    const input = make("input", { placeholder: parameter.required ? "required" : "" });
    inputs[parameter.name] = [parameter.in, input];
    form.append(make("p", {}, make("label", {}, `${parameter.name} `, input), ` ${parameter.description || ""}`));
  }
  const media = operation.requestBody && operation.requestBody.content["application/json"];
  const body = media ? make("textarea", { rows: "12" }, JSON.stringify(findExample(media), null, 2)) : null;
  if (body) form.append(body);
  const output = make("pre");
  form.append(make("p", {}, make("button", {}, "Try it")), output);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    output.textContent = "...";
    let target = path;
    const query = new URLSearchParams();
    const headers = {};
    for (const [name, [where, input]] of Object.entries(inputs)) {
      if (where === "path") target = target.replace(`{${name}}`, encodeURIComponent(input.value));
      else if (input.value && where === "query") query.set(name, input.value);
      else if (input.value && where === "header") headers[name] = input.value;
    }
    const token = document.getElementById("token").value;
    if (token) headers.Authorization = `Bearer ${token}`;
    if (body) headers["Content-Type"] = "application/json";
    try {
      const url = query.size ? `${target}?${query}` : target;
      const answer = await fetch(url, { method: method.toUpperCase(), headers, body: body ? body.value : undefined });
      const text = await answer.text();
      let shown = text;
      try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not JSON: shown as it came */ }
      output.textContent = `${answer.status} ${answer.statusText}\n${shown}`;
    } catch (error) {
      output.textContent = String(error);
    }
  });
  return form;
};

const showOperation = (path, method, operation) => {
  const head = make("summary", {}, make("span", { class: `method ${method}` }, method.toUpperCase()), make("code", {}, path), ` ${operation.summary || ""}`);
  const box = make("details", {}, head, make("p", {}, operation.description || ""));
  const media = operation.requestBody && operation.requestBody.content["application/json"];
  if (media) box.append(make("h4", {}, "Body"), showSchema(media.schema));
  for (const [status, answer] of Object.entries(operation.responses)) {
    if (status === "default") continue;
    box.append(make("h4", {}, `Answer ${status}`), make("p", {}, answer.description || ""));
    for (const content of Object.values(answer.content || {})) if (content.schema) box.append(showSchema(content.schema));
  }
  box.append(make("h4", {}, "Try it"), buildForm(path, method, operation));
  return box;
};

const show = async () => {
  spec = await (await fetch("/openapi.json")).json();
  document.getElementById("title").textContent = `${spec.info.title} ${spec.info.version}`;
  document.getElementById("summary").textContent = spec.info.summary || "";
  const groups = new Map();
  for (const [path, item] of Object.entries(spec.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      const tag = (operation.tags || ["other"])[0];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(showOperation(path, method, operation));
    }
  }
  const main = document.getElementById("operations");
  for (const [tag, boxes] of groups) main.append(make("section", {}, make("h2", {}, tag), ...boxes));
};

show();
