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
  let job = null;
  let events = null;

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
      const said = await answer.json();
      if (!answer.ok) throw new Error(said.error);
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
    events?.close();
    job = name;
    clear();
    at("job").hidden = false;
    events = new EventSource(`api/jobs/${job}/events`);
    events.addEventListener("state", (event) => {
      const state = JSON.parse(event.data);
      render(state);
      if (state.exit_code !== null && state.exit_code !== undefined) events.close();
    });
    events.addEventListener("error", () => {
      if (events.readyState === EventSource.CLOSED) gone("There is no such answer any more.");
    });
  };

  const clear = () => {
    for (const id of ["progress", "said", "answer", "pictures", "failure", "phase"]) at(id).replaceChildren();
    at("files").hidden = true;
    at("actions").hidden = false;
    at("stop").hidden = false;
  };

  const gone = (sentence) => {
    clear();
    at("state").textContent = "removed";
    at("state").className = "state";
    at("actions").hidden = true;
    at("failure").textContent = sentence;
  };

  const set = (id, content) => {
    if (at(id).textContent !== content) at(id).textContent = content;
  };

  const render = (state) => {
    set("state", state.state);
    at("state").className = `state ${state.state}`;
    const hasEnded = state.state === "done" || state.state === "failed";
    set("phase", hasEnded ? "" : (state.answer ? "drawing pictures" : (state.progress?.phase ?? "")));
    set("failure", state.error ?? "");
    at("stop").hidden = hasEnded || Boolean(state.answer);
    at("said").replaceChildren(...state.said.map((sentence) => element("li", {}, sentence)));
    at("progress").replaceChildren(...(state.answer || hasEnded ? [] : figures(state)));
    if (!state.answer) return;
    if (!at("answer").hasChildNodes()) at("answer").append(...state.answer.map(part));
    at("files").hidden = false;
    for (const name of ["schedule", "graph"]) at(name).href = `api/jobs/${job}/${name}`;
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
    const address = `api/jobs/${job}/pictures/${encodeURIComponent(name)}`;
    const says = words[kind] ?? kind;
    return element("figure", {}, element("figcaption", {}, says),
      element("a", { href: address }, element("img", { src: address, alt: `${says}; opens in full size` })));
  };

  at("stop").addEventListener("click", () => fetch(`api/jobs/${job}/stop`, { method: "POST" }));
  at("remove").addEventListener("click", async () => {
    events?.close();
    await fetch(`api/jobs/${job}`, { method: "DELETE" });
    history.replaceState(null, "", location.pathname);
    gone("The answer and all its files were removed.");
  });

  show();
  if (location.hash.length > 1) follow(location.hash.slice(1));
})();
