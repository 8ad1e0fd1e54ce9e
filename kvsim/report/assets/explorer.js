"use strict";
/* Selects from the numbers beside it, averages over seeds, shows; it computes no regime and no hit ratio. */
(() => {
  const root = document.getElementById("kvx");
  const data = JSON.parse(document.getElementById("kvx-data").textContent);
  const SHOW = {
    hit: { name: "hit ratio", label: "hit ratio (%)", least: 100 },
    gain: { name: "points over LRU", label: "points over LRU", least: 1 },
    closed: { name: "share of headroom closed", label: "headroom closed (%)", least: 100 },
    worth: { name: "worth × memory", label: "memory LRU would need (×)", least: 1.5 },
  };
  const UNITS = { blocks: "blocks", share: "% of distinct blocks", gib: "GiB" };
  const LITTLE = 1000; // millionths of hit ratio: below, there is no headroom to speak of
  const NONE = "none";
  const MEAN = "mean";
  const names = Object.keys(data.traces);
  // Rows end at the last capacity; where they are short, the first ones were not measured.
  for (const { sizes, lines, worth } of Object.values(data.traces))
    for (const by of [lines, worth])
      for (const rows of Object.values(by))
        rows.forEach((row, place) => { rows[place] = [...Array(sizes.length - row.length).fill(null), ...row]; });
  const state = { trace: names[0], policies: [], ttl: NONE, show: "hit", unit: "blocks", seed: MEAN, capacity: null, kv: data.bytes_per_token };

  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const time = (seconds) => (seconds === NONE ? NONE : seconds >= 3600 ? `${seconds / 3600} h` : seconds >= 60 ? `${seconds / 60} min` : `${seconds} s`);
  const trace = () => data.traces[state.trace];
  const place = () => trace().sizes.indexOf(state.capacity);

  // ---- numbers

  const rows = () => (state.seed === MEAN ? trace().seeds.map((_, row) => row) : [trace().seeds.indexOf(Number(state.seed))]);
  const over = (at, value) => {
    const known = rows().map((row) => value(row, at)).filter((x) => x !== null && !Number.isNaN(x));
    if (!known.length) return null;
    return { mean: known.reduce((sum, x) => sum + x, 0) / known.length, low: Math.min(...known), high: Math.max(...known), seeds: known.length };
  };
  const VALUES = {
    hit: (line) => (row, at) => { const hits = trace().lines[line][row][at]; return hits === null ? null : hits / 1e4; },
    gain: (line) => (row, at) => { const { lines } = trace(), hits = lines[line][row][at]; return hits === null ? null : (hits - lines.lru[row][at]) / 1e4; },
    closed: (line) => (row, at) => {
      const { lines } = trace(), hits = lines[line][row][at], lru = lines.lru[row][at], room = lines.opt[row][at] - lru;
      return hits === null || room < LITTLE ? null : (100 * (hits - lru)) / room;
    },
    worth: (line) => (row, at) => { if (line === "lru") return 1; const worth = trace().worth[line][row][at]; return worth === null ? null : worth / 100; },
  };
  const chosen = () => {
    const lines = [{ line: "lru", name: "LRU" }, { line: "opt", name: "OPT", dash: true }];
    for (const policy of new Set(state.policies)) if (policy) lines.push({ line: policy, name: policy });
    lines.forEach((line, number) => { line.color = `--line-${number}`; });
    if (state.ttl !== NONE) lines.push({ line: `lru ttl ${state.ttl}`, name: `LRU, TTL ${time(state.ttl)}`, color: "--line-5", dash: true });
    return lines;
  };

  // ---- words

  const number = (value, digits = 1) => {
    const text = value.toFixed(digits).replace("-", "−");
    return /^−0\.?0*$/.test(text) ? text.slice(1) : text;
  };
  const inUnit = (blocks) => {
    if (state.unit === "share") return (100 * blocks) / trace().distinct;
    return state.unit === "gib" ? (blocks * trace().block * state.kv) / 2 ** 30 : blocks;
  };
  const sizeText = (blocks) => {
    const gib = (blocks * trace().block * state.kv) / 2 ** 30;
    return `${blocks.toLocaleString("en")} blocks · ${Number(((100 * blocks) / trace().distinct).toPrecision(3))} % of distinct · ${Number(gib.toPrecision(3)).toLocaleString("en")} GiB`;
  };
  const sentence = () => {
    const [regime, ...numbers] = trace().regimes[state.ttl][place()];
    const text = data.sentences[regime].replace(/\{\w+\}/g, () => numbers.shift());
    return trace().seeds.length > 1 ? `${text} (Mean of ${trace().seeds.length} seeds.)` : text;
  };
  const command = () => {
    const { opened, window: starts, seeds } = trace();
    const all = state.seed === MEAN && seeds.length > 1;
    const seed = all ? "$seed" : state.seed === MEAN ? seeds[0] : state.seed;
    const where = `--capacity ${state.capacity}${starts ? ` --window ${starts} --seed ${seed}` : ""}`;
    const lines = [`kvsim simulate ${opened} --policy ${["lru", "opt", ...new Set(state.policies.filter(Boolean))].join(",")} ${where}`];
    if (state.ttl !== NONE) lines.push(`kvsim simulate ${opened} --policy lru --ttl ${state.ttl} ${where}`);
    return all ? `for seed in ${seeds.join(" ")}; do\n${lines.map((line) => `  ${line}`).join("\n")}\ndone` : lines.join("\n");
  };

  // ---- page

  const field = (id, label, control) => make("div", {}, make("label", { htmlFor: id, textContent: label }), Object.assign(control, { id }));
  const select = (change) => make("select", { onchange: (event) => { change(event.target.value); show(); } });
  const fill = (control, options, value) => {
    control.replaceChildren(...options.map(([option, text]) => make("option", { value: option, textContent: text })));
    control.value = value;
  };
  const controls = {
    trace: select((value) => { state.trace = value; settle(); }),
    policies: [0, 1, 2].map((which) => select((value) => { state.policies[which] = value; })),
    ttl: select((value) => { state.ttl = value === NONE ? NONE : Number(value); }),
    show: select((value) => { state.show = value; }),
    unit: select((value) => { state.unit = value; }),
    seed: select((value) => { state.seed = value; }),
    kv: make("input", { type: "number", min: 1, step: 1, onchange: (event) => { if (event.target.value > 0) state.kv = Number(event.target.value); show(); } }),
    capacity: make("input", { type: "range", id: "kvx-capacity", min: 0, step: 1, oninput: (event) => { state.capacity = trace().sizes[event.target.value]; show(); } }),
  };
  const size = make("output", { htmlFor: "kvx-capacity" });
  const keys = make("ul", { className: "kvx-keys" });
  const host = make("div", { className: "kvx-plot" });
  host.setAttribute("role", "img");
  const verdict = make("p", { className: "kvx-sentence" });
  verdict.setAttribute("aria-live", "polite");
  const table = make("table");
  const code = make("pre");
  code.tabIndex = 0;
  const copied = make("span", { className: "kvx-note" });
  copied.setAttribute("role", "status");
  const copy = make("button", { type: "button", textContent: "Copy", onclick: async () => {
    try { await navigator.clipboard.writeText(code.textContent); copied.textContent = "copied"; }
    catch { getSelection().selectAllChildren(code); copied.textContent = "selected: press Ctrl+C"; }
  } });
  const scroll = make("div", { className: "kvx-scroll" }, table);
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", "Values at the capacity");
  const note = make("p", { className: "kvx-note", textContent:
    "Hit ratio in blocks; lines join measured points. Policies run without a TTL; a TTL is added to LRU. Headroom: the share of the way from LRU to OPT. Worth: the multiple of this memory that LRU would need for the same hits. In brackets: lowest to highest seed." });
  const form = make("form", { onsubmit: (event) => event.preventDefault() },
    field("kvx-trace", "trace", controls.trace),
    ...controls.policies.map((control, which) => field(`kvx-policy-${which + 1}`, `policy ${which + 1}`, control)),
    field("kvx-ttl", "TTL of LRU", controls.ttl), field("kvx-show", "show", controls.show), field("kvx-seed", "session starts", controls.seed),
    field("kvx-unit", "capacity in", controls.unit), field("kvx-kv", "KV bytes a token", controls.kv));
  const slide = make("div", { className: "kvx-slide" }, make("label", { htmlFor: "kvx-capacity", textContent: "capacity" }), controls.capacity, size);
  let draw = null;

  const settle = () => {
    const { sizes, policies, ttls, seeds } = trace();
    if (!state.policies.length) state.policies = ["liveness", "lhd", "lirs"];
    state.policies = [0, 1, 2].map((which) => (policies.includes(state.policies[which]) ? state.policies[which] : ""));
    if (state.ttl !== NONE && !ttls.includes(state.ttl)) state.ttl = NONE;
    if (state.seed !== MEAN && !seeds.includes(Number(state.seed))) state.seed = MEAN;
    if (!sizes.includes(state.capacity)) {
      const wanted = state.capacity ?? sizes[Math.floor(0.58 * sizes.length)];
      state.capacity = sizes.reduce((best, one) => (Math.abs(Math.log(one / wanted)) < Math.abs(Math.log(best / wanted)) ? one : best));
    }
  };
  const restore = () => {
    const given = new URLSearchParams(location.hash.slice(1));
    if (!names.includes(given.get("trace"))) return;
    state.trace = given.get("trace");
    state.policies = (given.get("policies") ?? "").split(",");
    state.ttl = given.get("ttl") > 0 ? Number(given.get("ttl")) : NONE;
    state.show = given.get("show") in SHOW ? given.get("show") : "hit";
    state.unit = given.get("unit") in UNITS ? given.get("unit") : "blocks";
    state.seed = given.get("seed") ?? MEAN;
    state.capacity = given.get("capacity") > 0 ? Number(given.get("capacity")) : null;
    state.kv = given.get("kv") > 0 ? Number(given.get("kv")) : data.bytes_per_token;
  };
  const remember = () => {
    const { trace: name, policies, ttl, show: shown, unit, seed, capacity, kv } = state;
    history.replaceState(null, "", `#${new URLSearchParams({ trace: name, policies, capacity, ttl, show: shown, seed, unit, kv })}`);
  };

  const cell = (value, digits, span) => {
    if (value === null) return make("td", { textContent: "–" });
    const td = make("td", { textContent: number(value.mean, digits) });
    if (span && value.seeds > 1) td.append(make("small", { textContent: `(${number(value.low)} to ${number(value.high)})` }));
    return td;
  };
  const key = (line) => { const item = make("i", { className: `kvx-key${line.dash ? " dashed" : ""}` }); item.style.borderColor = `var(${line.color})`; return item; };
  const tell = (lines) => {
    const head = make("tr", {}, ...["line", "hits, %", "over LRU, points", "headroom, %", "worth, ×"].map((text) => { const th = make("th", { textContent: text }); th.scope = "col"; return th; }));
    const body = lines.map((line) => {
      const name = make("th", {}, key(line), line.name);
      name.scope = "row";
      const at = place(), hit = over(at, VALUES.hit(line.line));
      if (hit === null) return make("tr", {}, name, make("td", { className: "absent", colSpan: 4, textContent: "not measured at this capacity" }));
      return make("tr", {}, name, cell(hit, 1), cell(over(at, VALUES.gain(line.line)), 1, line.line !== "lru"),
        cell(over(at, VALUES.closed(line.line)), 0), cell(over(at, VALUES.worth(line.line)), 2));
    });
    table.replaceChildren(make("caption", { textContent: `${state.trace} at ${sizeText(state.capacity)}${trace().seeds.length > 1 ? (state.seed === MEAN ? `, mean of ${trace().seeds.length} seeds` : `, seed ${state.seed}`) : ""}` }),
      make("thead", {}, head), make("tbody", {}, ...body));
  };

  function show() {
    const { sizes, policies, ttls, seeds } = trace();
    fill(controls.trace, names.map((name) => [name, name]), state.trace);
    controls.policies.forEach((control, which) => fill(control, [["", "–"], ...policies.map((name) => [name, name])], state.policies[which]));
    fill(controls.ttl, [NONE, ...ttls].map((ttl) => [ttl, time(ttl)]), state.ttl);
    fill(controls.show, Object.entries(SHOW).map(([value, { name }]) => [value, name]), state.show);
    fill(controls.unit, Object.entries(UNITS), state.unit);
    fill(controls.seed, seeds.length > 1 ? [[MEAN, `mean of ${seeds.length}`], ...seeds.map((seed) => [seed, `seed ${seed}`])] : [[MEAN, trace().window ? `seed ${seeds[0]}` : "the trace's own"]], state.seed);
    controls.kv.value = state.kv;
    controls.capacity.max = sizes.length - 1;
    controls.capacity.value = place();
    controls.capacity.setAttribute("aria-valuetext", sizeText(state.capacity));
    size.textContent = sizeText(state.capacity);
    const lines = chosen();
    const values = lines.map((line) => ({ ...line, values: sizes.map((_, at) => over(at, VALUES[state.show](line.line))?.mean ?? null) }));
    const starts = state.policies.filter(Boolean).map((policy) => trace().lines[policy][0].findIndex((hits) => hits !== null)).filter((at) => at > 0);
    const view = { sizes: sizes.map(inUnit), xlabel: `capacity (${UNITS[state.unit]})`, ylabel: SHOW[state.show].label, least: SHOW[state.show].least,
      lines: values, mark: inUnit(state.capacity), absentBelow: starts.length ? inUnit(sizes[Math.max(...starts)]) : null,
      onMove: (at) => { state.capacity = sizes[at]; show(); } };
    keys.replaceChildren(...lines.map((line) => make("li", {}, key(line), line.name)));
    host.setAttribute("aria-label", `${SHOW[state.show].name} of ${lines.map((line) => line.name).join(", ")} over capacity on ${state.trace}; the values at the chosen capacity are in the table below.`);
    if (draw) draw(view); else draw = kvsimPlot.plot(host, view);
    verdict.textContent = sentence();
    tell(lines);
    code.textContent = command();
    copied.textContent = "";
    remember();
  }

  restore();
  settle();
  root.replaceChildren(form, host, keys, slide, verdict, scroll, make("div", { className: "kvx-command" }, code, copy, copied), note);
  addEventListener("hashchange", () => { restore(); settle(); show(); });
  show();
})();
