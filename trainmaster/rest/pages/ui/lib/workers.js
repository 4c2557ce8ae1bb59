// Starts workers. The page's policy allows addresses of scripts only from here, and here only our own are made.

/** @type {{createScriptURL: (text: string) => any} | null} */
let policy = null;

/** @param {"diff_worker.js"} name of a module in this folder */
export function startWorker(name) {
  const address = new URL(`./${name}`, import.meta.url);
  const types = /** @type {any} */ (globalThis).trustedTypes;
  if (types && !policy) policy = types.createPolicy("ui", { createScriptURL: checkAddress });
  return new Worker(policy ? policy.createScriptURL(address.href) : address, { type: "module" });
}

/** @param {string} text */
function checkAddress(text) {
  const folder = new URL("./", import.meta.url).href;
  if (!text.startsWith(folder)) throw new TypeError(`${text} is no module of this page`);
  return text;
}
