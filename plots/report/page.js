"use strict";
// Sorting, filters and the details of cells. Texts are set as text, never as HTML.
(() => {
  const cells = JSON.parse(document.getElementById("data").textContent).cells;
  const table = document.getElementById("table");
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  const order = new Intl.Collator("en", { numeric: true });
  const detailsOf = new Map();

  const element = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };

  // --- sorting -------------------------------------------------------------------------------

  const keyOf = (row, column) => {
    const cell = row.cells[column];
    if ("order" in cell.dataset) return Number(cell.dataset.order);
    return cell.textContent === "–" ? null : cell.textContent;
  };

  const compare = (one, other) => {
    if (typeof one === "number" && typeof other === "number") return one - other;
    return order.compare(one, other);
  };

  const sortBy = (column) => {
    const head = heads[column];
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    heads.forEach((each) => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    const keyed = rows.map((row) => [keyOf(row, column), row]);
    // What has no figure stays last in both directions.
    keyed.sort(([one], [other]) => {
      if (one === null || other === null) return (one === null) - (other === null);
      return sign * compare(one, other);
    });
    body.append(...keyed.flatMap(([, row]) => (detailsOf.has(row) ? [row, detailsOf.get(row)] : [row])));
  };

  heads.forEach((head, column) => {
    const button = element("button", { type: "button" }, head.textContent);
    button.addEventListener("click", () => sortBy(column));
    // On paper, Chromium repeats a table's head on every page only if no button is in it.
    head.replaceChildren(button, element("span", { class: "printed" }, head.textContent));
  });

  // --- filters -------------------------------------------------------------------------------

  const form = document.querySelector(".controls");
  const search = document.getElementById("search");
  const selects = [...form.querySelectorAll("select")];
  const shown = document.getElementById("shown");
  const texts = rows.map((row) => row.textContent.toLowerCase());

  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    rows.forEach((row, index) => {
      const fits =
        words.every((word) => texts[index].includes(word)) &&
        selects.every((select, factor) => select.value === "" || Number(select.value) === cells[index].levels[factor]);
      row.hidden = !fits;
      if (detailsOf.has(row)) detailsOf.get(row).hidden = !fits;
      count += fits;
    });
    shown.textContent = `${count} of ${rows.length} cells`;
  };

  form.hidden = false;
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(filter));
  filter();

  // --- details -------------------------------------------------------------------------------

  const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const levelsOf = (line) => {
    const levels = [];
    for (let at = 0; at < line.levels.length; at += 2) {
      const share = LETTERS.indexOf(line.levels[at]) * 64 + LETTERS.indexOf(line.levels[at + 1]);
      levels.push((share / 4095) * line.top);
    }
    return levels;
  };

  const PREFIXES = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
  const SIZES = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];
  const quantity = (top, unit) => {
    const [factor, prefix] = PREFIXES.find(([least]) => top >= least) || PREFIXES[6];
    return [factor, prefix + unit];
  };
  const bytes = (top) => SIZES.find(([least]) => top >= least) || SIZES[3];
  const words = (value, [factor, unit]) => `${Number((value / factor).toPrecision(4))} ${unit}`;

  const SVG = "http://www.w3.org/2000/svg";
  const drawn = (parent, name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  };

  const ticksOf = (top, factor) => {
    const rough = top / factor / 4;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999);
    const ticks = [];
    for (let number = 0; number * step <= (top / factor) * 1.001; number += 1) {
      ticks.push([number * step * factor, String(Number((number * step).toPrecision(3)))]);
    }
    return ticks;
  };

  // A picture of lines over time; each has a class, and the first an area below it.
  const picture = (title, told, end, top, unit, lines, marks) => {
    const width = innerWidth < 600 ? 380 : 640;
    const height = 230, left = 64, right = width - 12, high = 10, low = 188;
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("class", "chart");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${title}: ${told}`);
    const x = (time) => left + (time / end) * (right - left);
    const y = (level) => low - (level / (top * 1.06)) * (low - high);
    const grid = drawn(svg, "g", { class: "grid" });
    const time = quantity(end, "s");
    for (const [value, label] of ticksOf(end, time[0])) {
      drawn(grid, "path", { d: `M${x(value)} ${high}V${low}` });
      drawn(svg, "text", { x: x(value), y: low + 16, "text-anchor": "middle" }, label);
    }
    for (const [value, label] of ticksOf(top, unit[0])) {
      drawn(grid, "path", { d: `M${left} ${y(value)}H${right}` });
      drawn(svg, "text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, label);
    }
    drawn(grid, "path", { class: "frame", d: `M${left} ${high}V${low}H${right}` });
    drawn(svg, "text", { x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, `time (${time[1]})`);
    drawn(svg, "text", { transform: `translate(14 ${(high + low) / 2}) rotate(-90)`, "text-anchor": "middle" }, unit[1]);
    lines.forEach(({ line, css }, index) => {
      const levels = levelsOf(line);
      const wide = line.end / levels.length;
      const steps = levels.map((level, at) => `V${y(level).toFixed(1)}H${x((at + 1) * wide).toFixed(1)}`).join("");
      if (index === 0) drawn(svg, "path", { class: "area", d: `M${left} ${low}${steps}V${low}Z` });
      drawn(drawn(svg, "g", { class: css }), "path", { class: "line", d: `M${left} ${y(levels[0]).toFixed(1)}${steps}` });
    });
    for (const { level, time: at, css } of marks) {
      drawn(svg, "path", { class: css, d: at === undefined ? `M${left} ${y(level)}H${right}` : `M${x(at)} ${high}V${low}` });
    }
    return element("figure", {}, element("figcaption", {}, title, element("br"), element("small", {}, told)), svg);
  };

  const timelines = ({ timeline, source }) => {
    const made = [];
    const { memory, power, memoryAsRun, sampledPower, budget, arena } = timeline;
    const most = Math.max(memory.top, budget, arena || 0);
    const unit = bytes(most);
    const run = memoryAsRun ? `, as run in ${words(memoryAsRun.end, quantity(memoryAsRun.end, "s"))} (orange)` : "";
    made.push(
      picture(
        "Memory over a step",
        `predicted in ${words(memory.end, quantity(memory.end, "s"))} (blue)${run}; at most ${words(memory.top, unit)}, ` +
          `budget ${words(budget, unit)} (dashed)${arena ? `, with addresses ${words(arena, unit)}` : ""}`,
        Math.max(memory.end, memoryAsRun ? memoryAsRun.end : 0),
        most,
        unit,
        [{ line: memory, css: "s0" }, ...(memoryAsRun ? [{ line: memoryAsRun, css: "s1" }] : [])],
        [{ level: budget, css: "budget" }],
      ),
    );
    if (power.top > 0) {
      const watts = quantity(power.top, "W");
      made.push(
        picture("Power over a step, predicted", `from ${source[0]} joules, mean of each moment; at most ${words(power.top, watts)}`, power.end, power.top, watts, [{ line: power, css: "s0" }], []),
      );
    }
    if (sampledPower) {
      const watts = quantity(sampledPower.top, "W");
      made.push(
        picture(
          `Power over ${timeline.starts.length} steps, as run`,
          `${source[1]}; at most ${words(sampledPower.top, watts)}; dotted lines are starts of steps`,
          sampledPower.end,
          sampledPower.top,
          watts,
          [{ line: sampledPower, css: "s1" }],
          timeline.starts.map((time) => ({ time, css: "step" })),
        ),
      );
    }
    return element("div", { class: "charts" }, ...made);
  };

  const panel = (cell) => {
    const facts = element("dl");
    for (const [what, text] of cell.facts) facts.append(element("div", {}, element("dt", {}, what), element("dd", {}, text)));
    const again = element("div", {}, element("dt", {}, "repeat, where campaign report was called"), element("dd"));
    for (const command of cell.commands) again.lastChild.append(element("code", {}, command), element("br"));
    facts.append(again);
    const parts = cell.timeline ? [timelines(cell)] : [];
    return element("div", { class: "panel" }, ...parts, facts);
  };

  rows.forEach((row, index) => {
    const number = row.cells[0].textContent;
    const button = element("button", { type: "button", class: "open", "aria-expanded": "false", "aria-label": `Details of cell ${number}` }, "+");
    button.addEventListener("click", () => {
      const open = detailsOf.get(row);
      if (open) {
        open.remove();
        detailsOf.delete(row);
      } else {
        const details = element("tr", { class: "details" }, element("td", { colspan: heads.length }, panel(cells[index])));
        row.after(details);
        detailsOf.set(row, details);
      }
      button.setAttribute("aria-expanded", String(!open));
      button.textContent = open ? "+" : "−";
    });
    row.cells[0].append(" ", button);
  });
})();
