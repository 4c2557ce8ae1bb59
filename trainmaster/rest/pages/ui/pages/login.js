// The page for everybody who is not logged in, and for a server that does not answer.
import { html, useEffect, useState } from "../html.js";
import { t } from "../lib/i18n.js";
import { loadSession, logIn, session } from "../lib/session.js";
import { Command, Problem } from "../parts/basics.js";

/** Tokens never cross a connection that is not encrypted. */
const isEncrypted = location.protocol === "https:";
/** With the prefix of a proxy. */
const SERVER = new URL("..", document.baseURI).href.replace(/\/$/, "");

export function LoginPage() {
  useEffect(() => {
    document.title = `${t("login")} · Trainmaster`;
  });
  return html`<main class="alone">
    <h1>Trainmaster</h1>
    <${Problem} problem=${session.value.problem} />
    <section>
      <h2>${t("login.link")}</h2>
      <p>${t("login.link.text")}</p>
      <p><${Command} command="trainmaster dashboard" /></p>
      ${isEncrypted ? html`<p>${t("login.link.far")}</p><p><${Command} command=${`trainmaster dashboard --server ${SERVER} --kubeconfig FILE`} /></p>` : null}
    </section>
    ${isEncrypted ? html`<${TokenForm} />` : null}
    ${navigator.cookieEnabled ? null : html`<p class="problem">${t("login.cookies")}</p>`}
  </main>`;
}

function TokenForm() {
  const [token, setToken] = useState("");
  const [isBusy, setBusy] = useState(false);
  /** @param {Event} event */
  const send = async (event) => {
    event.preventDefault();
    setBusy(true);
    await logIn({ token: token.trim() });
    setBusy(false);
    setToken("");
  };
  return html`<section>
    <h2>${t("login.token")}</h2>
    <form onSubmit=${send}>
      <label>${t("login.token.label")}
        <input type="password" autocomplete="off" spellcheck=${false} required value=${token} onInput=${(/** @type {any} */ event) => setToken(event.target.value)} />
      </label>
      <button type="submit" class="main" disabled=${isBusy}>${t("login")}</button>
    </form>
  </section>`;
}

const RETRY_MS = 3_000;

export function UnreachablePage() {
  useEffect(() => {
    const timer = setInterval(loadSession, RETRY_MS);
    return () => clearInterval(timer);
  }, []);
  return html`<main class="alone">
    <h1>Trainmaster</h1>
    <${Problem} problem=${session.value.problem} />
    <p>${t("unreachable.text")}</p>
    <p><${Command} command="trainmaster status" /></p>
  </main>`;
}
