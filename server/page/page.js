"use strict";
// Sends the form, follows its job and shows the answer. Texts are set as text, never as HTML.
(() => {
  const constants = JSON.parse(document.getElementById("constants").textContent);
  const at = (id) => document.getElementById(id);
  const form = at("form");
  const files = ["network_file", "graph_file", "profile_file"];
  const words = {
    memory: "Memory over one step, with the budget",
    stages: "Which tensors are in RAM at each operation",
    addresses: "Addresses of all tensors in the arena over one step",
    operations: "Costs of the profile’s operations",
    storage: "Costs of paging to and from storage",
  };
  const patienceMs = 10000;
  const pauseMs = 3000;
  let job = null; // the name of the job that is shown
  let events = null; // its events, followed or just ended

  const element = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };

  const quantity = (value, unit) => {
    if (value === 0) return `0 ${unit}`;
    const prefixes = [[1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
    const [factor, prefix] = prefixes.find(([least]) => Math.abs(value) >= least) ?? [1, ""];
    return `${Number((value / factor).toPrecision(6))} ${prefix}${unit}`;
  };

  const set = (id, content) => {
    if (at(id).textContent !== content) at(id).textContent = content;
  };

  // --- requests ------------------------------------------------------------------------------

  // A proxy that asks for a login redirects; what comes back then is not from the server.
  const isDone = (answer) => answer.ok && !answer.redirected;

  // Why a request had no effect. The server says it in JSON; a proxy does not.
  const reason = async (answer) => {
    const said = await answer.json().catch(() => null);
    if (typeof said?.error === "string") return said.error;
    return answer.redirected
      ? "a proxy redirected the request, perhaps to a login"
      : `the server or a proxy refused with status ${answer.status}`;
  };

  const addressOf = (name, part = "") => `api/jobs/${encodeURIComponent(name)}${part}`;

  // Sends a request about a job. `failure` is why it had no effect, and empty for a job that is gone.
  const send = async (method, address) => {
    try {
      const answer = await fetch(address, { method, signal: AbortSignal.timeout(patienceMs) });
      const isGone = answer.status === 404;
      return { isGone, failure: isGone || isDone(answer) ? "" : await reason(answer) };
    } catch {
      return { isGone: false, failure: "the server does not answer" };
    }
  };

  // --- the form ------------------------------------------------------------------------------

  const chosen = () => {
    const source = at("source").value;
    const cost = at("cost").value;
    const shown = new Set([source, source === "graph_file" ? "" : cost]);
    return { source, cost, shown };
  };

  const show = () => {
    const { source, shown } = chosen();
    for (const part of form.querySelectorAll("[data-for]")) part.hidden = !shown.has(part.dataset.for);
    for (const part of form.querySelectorAll("[data-network]")) part.hidden = source === "graph_file";
  };

  const request = () => {
    const { source, cost, shown } = chosen();
    const data = new FormData();
    if (!files.includes(source) && source !== "of-profile") data.set("network", source);
    if (source !== "graph_file" && cost !== "profile_file") data.set("profile", cost);
    let bytes = 0;
    for (const name of files.filter((each) => shown.has(each))) {
      const [file] = at(name).files;
      if (!file) throw new Error(`Choose the ${form.querySelector(`label[for="${name}"]`).textContent} first.`);
      bytes += file.size;
      data.set(name, file);
    }
    if (bytes > constants.upload_bytes) throw new Error(`The files are larger than ${constants.largest}, the most here.`);
    for (const input of form.querySelectorAll("[name]")) {
      const isOn = input.type === "checkbox" ? input.checked : input.value.trim() !== "";
      if (isOn && !input.closest("[hidden]")) data.set(input.name, input.value.trim());
    }
    return data;
  };

  const refuse = (sentence) => { at("refusal").textContent = sentence; };

  form.addEventListener("change", show);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    refuse("");
    at("send").disabled = true;
    try {
      const answer = await fetch("api/jobs", { method: "POST", body: request() });
      if (!isDone(answer)) throw new Error(await reason(answer));
      const said = await answer.json();
      history.replaceState(null, "", `#${said.job}`);
      follow(said.job);
      at("job-heading").focus();
    } catch (error) {
      refuse(error instanceof TypeError ? "The server does not answer." : error.message);
    } finally {
      at("send").disabled = false;
    }
  });

  // --- the job -------------------------------------------------------------------------------

  const follow = (name) => {
    unfollow();
    job = name;
    clear();
    showState("unknown");
    at("job").hidden = false;
    at("skip").hidden = false;
    listen();
  };

  const unfollow = () => {
    events?.close();
    events = null;
  };

  const leave = () => {
    unfollow();
    job = null;
    at("job").hidden = true;
    at("skip").hidden = true;
  };

  // The name of the job is kept in the page's address, which can be kept and sent to others.
  const followAddress = () => {
    const name = location.hash.slice(1);
    if (name === (job ?? "")) return;
    if (name) follow(name);
    else leave();
  };

  const listen = () => {
    const source = new EventSource(addressOf(job, "/events"));
    events = source;
    source.addEventListener("state", (event) => {
      const state = JSON.parse(event.data);
      set("connection", "");
      render(state);
      if (state.exit_code !== null && state.exit_code !== undefined) source.close();
    });
    source.addEventListener("error", () => {
      source.close();
      listenAgain(source);
    });
  };

  // An event source does not tell why it ended: ask, say it, and listen again after a pause.
  const listenAgain = async (ended) => {
    const { isGone, failure } = await send("GET", addressOf(job));
    if (events !== ended) return;
    if (isGone) {
      gone("There is no such answer any more.");
      return;
    }
    const cause = failure || "it was interrupted";
    set("connection", `No connection: ${cause}. Below is the last state that arrived. The page tries again every ${pauseMs / 1000} s.`);
    setTimeout(() => { if (events === ended) listen(); }, pauseMs);
  };

  const clear = () => {
    const texts = ["connection", "phase", "stop-failure", "remove-failure", "failure"];
    for (const id of [...texts, "progress", "said", "answer", "pictures"]) at(id).replaceChildren();
    at("files").hidden = true;
    at("actions").hidden = false;
    at("stop").hidden = false;
  };

  const showState = (word) => {
    set("state", word);
    at("state").className = `state ${word}`;
  };

  const gone = (sentence) => {
    unfollow();
    clear();
    showState("removed");
    at("actions").hidden = true;
    at("failure").textContent = sentence;
  };

  const render = (state) => {
    showState(state.state);
    const hasEnded = state.state === "done" || state.state === "failed";
    set("phase", hasEnded ? "" : (state.answer ? "drawing pictures" : (state.progress?.phase ?? "")));
    set("failure", state.error ?? "");
    at("stop").hidden = hasEnded || Boolean(state.answer);
    if (at("stop").hidden) set("stop-failure", "");
    at("said").replaceChildren(...state.said.map((sentence) => element("li", {}, sentence)));
    at("progress").replaceChildren(...(state.answer || hasEnded ? [] : figures(state)));
    if (!state.answer) return;
    if (!at("answer").hasChildNodes()) at("answer").append(...state.answer.map(part));
    at("files").hidden = false;
    for (const name of ["schedule", "graph"]) at(name).href = addressOf(job, `/${name}`);
    const drawn = at("pictures").children.length;
    at("pictures").append(...state.pictures.slice(drawn).map(picture));
  };

  const figures = ({ progress, energy_source: source }) => {
    if (!progress) return [];
    const joules = (value) => (value === null ? "none yet" : `${quantity(value, "J")} (${source ?? constants.no_source})`);
    const rows = [["time", `${progress.seconds.toFixed(1)} s`]];
    if (!progress.phase.startsWith("smallest")) {
      rows.push(["best so far", joules(progress.value)], ["proven bound", joules(progress.bound)]);
      if (progress.value && progress.bound !== null) {
        const gap = (progress.value - progress.bound) / progress.value;
        rows.push(["gap", `${(100 * gap).toFixed(3)} %`]);
      }
    }
    return rows.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)));
  };

  const part = (content) => {
    if (typeof content === "string") return element("p", {}, content);
    const [head, ...rows] = content;
    const heads = head.map((name) => (name ? element("th", { scope: "col", class: "n" }, name) : element("td")));
    const body = rows.map(([name, ...values]) =>
      element("tr", {}, element("th", { scope: "row" }, name), ...values.map((value) => element("td", { class: "n" }, value))));
    const table = element("table", {}, element("caption", {}, "One training step"),
      element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...body));
    return element("div", { class: "scroll", role: "region", "aria-label": "One training step", tabindex: "0" }, table);
  };

  const picture = (name) => {
    const kind = name.replace(/\.png$/, "").split("-").pop();
    const address = addressOf(job, `/pictures/${encodeURIComponent(name)}`);
    const says = words[kind] ?? kind;
    return element("figure", {}, element("figcaption", {}, says),
      element("a", { href: address }, element("img", { src: address, alt: `${says}; opens in full size` })));
  };

  const stop = async () => {
    const stopped = job;
    set("stop-failure", "");
    const { isGone, failure } = await send("POST", addressOf(stopped, "/stop"));
    if (job !== stopped) return;
    if (isGone) gone("There is no such answer any more.");
    else if (failure && !at("stop").hidden) set("stop-failure", `Stopping failed: ${failure}. Try again.`);
  };

  const remove = async () => {
    const removed = job;
    unfollow(); // the events of a removed job end
    set("remove-failure", "");
    const { failure } = await send("DELETE", addressOf(removed));
    if (job !== removed || events) return; // something else was asked for meanwhile
    if (failure) {
      set("remove-failure", `Removing failed: ${failure}. Try again.`);
      listen();
      return;
    }
    history.replaceState(null, "", location.pathname);
    gone("The answer and all its files were removed.");
    job = null;
  };

  at("stop").addEventListener("click", stop);
  at("remove").addEventListener("click", remove);
  at("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address holds the name of the job
    at("job-heading").focus();
  });
  window.addEventListener("hashchange", followAddress);

  show();
  followAddress();
})();
