"use strict";
/* Lines over capacity: the one use of uPlot. */
window.kvsimPlot = (() => {
  const style = (element, name) => getComputedStyle(element).getPropertyValue(name).trim();
  const count = (blocks) => {
    for (const [size, unit] of [[1e6, "M"], [1e3, "k"]])
      if (blocks >= size) return `${Number((blocks / size).toPrecision(3))}${unit}`;
    return `${Number(blocks.toPrecision(3))}`;
  };

  const powers = (low, high) => {
    const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, step) => 10 ** (first + step));
  };

  /* host: where; view: {sizes, xlabel, ylabel, least, lines: [{name, color, dash, values}],
     mark, absentBelow, onMove(index), onHover(index)}; returns a function that draws another view. */
  function plot(host, first) {
    let view = first;
    let chart = null;
    const draw = () => {
      const ink = style(host, "--ink"), rule = style(host, "--rule"), soft = style(host, "--soft");
      const font = "12px system-ui, sans-serif";
      const axis = { stroke: ink, font, labelFont: font, grid: { stroke: rule, width: 1 }, ticks: { stroke: rule } };
      const values = view.lines.flatMap((line) => line.values).filter((value) => value !== null);
      const low = Math.min(0, ...values), high = Math.max(view.least ?? 1, ...values);
      const options = {
        width: host.clientWidth, height: host.clientHeight, legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
        scales: { x: { time: false, distr: 3, range: [view.sizes[0], view.sizes.at(-1)] }, y: { range: [low - (low < 0 ? 0.05 * (high - low) : 0), high + 0.05 * (high - low)] } },
        axes: [
          { ...axis, label: view.xlabel, labelSize: 20, space: 30, size: 34,
            splits: (u) => powers(u.scales.x.min, u.scales.x.max),
            values: (u, ticks) => ticks.map(count) },
          { ...axis, label: view.ylabel, labelSize: 20, size: 48, values: (u, ticks) => ticks.map((tick) => String(tick).replace("-", "−")) },
        ],
        series: [{}, ...view.lines.map((line) => ({
          label: line.name, stroke: style(host, line.color), width: 2, dash: line.dash ? [6, 4] : undefined,
          spanGaps: false, points: { show: line.values.filter((value) => value !== null).length === 1 },
        }))],
        hooks: {
          drawClear: [(u) => {
            if (!view.absentBelow) return;
            const right = u.valToPos(view.absentBelow, "x", true), { ctx, bbox } = u;
            ctx.save();
            ctx.fillStyle = style(host, "--wash");
            ctx.fillRect(bbox.left, bbox.top, right - bbox.left, bbox.height);
            ctx.fillStyle = soft;
            ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
            if (right - bbox.left > 130 * devicePixelRatio)
              ctx.fillText("policies not measured", bbox.left + 8 * devicePixelRatio, bbox.top + 28 * devicePixelRatio);
            ctx.restore();
          }],
          draw: [(u) => {
            if (view.mark === undefined) return;
            const x = u.valToPos(view.mark, "x", true), { ctx, bbox } = u;
            ctx.save();
            ctx.strokeStyle = ink;
            ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
            ctx.lineWidth = 1.5 * devicePixelRatio;
            ctx.beginPath();
            ctx.moveTo(x, bbox.top);
            ctx.lineTo(x, bbox.top + bbox.height);
            ctx.stroke();
            ctx.restore();
          }],
          ready: [(u) => u.over.addEventListener("click", () => view.onMove && u.cursor.idx !== null && view.onMove(u.cursor.idx))],
          setCursor: [(u) => view.onHover && view.onHover(u.cursor.idx)],
        },
      };
      chart?.destroy();
      chart = new uPlot(options, [view.sizes, ...view.lines.map((line) => line.values)], host);
    };
    draw();
    new ResizeObserver(() => {
      if (chart.width !== host.clientWidth) chart.setSize({ width: host.clientWidth, height: host.clientHeight });
    }).observe(host);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    new MutationObserver(draw).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return (next) => { view = next; draw(); };
  }

  /* Turns the pictures of curves into plots that show the values under the pointer. */
  function enliven(figure) {
    const lines = Object.entries(JSON.parse(figure.dataset.lines));
    const sizes = [...new Set(lines.flatMap(([, points]) => points.map(([size]) => size)))].sort((a, b) => a - b);
    const drawn = lines.map(([name, points], place) => {
      const known = new Map(points);
      return { name, color: `--line-${place % 6}`, dash: place % 2 === 1, values: sizes.map((size) => (known.has(size) ? 100 * known.get(size) : undefined)) };
    });
    const host = document.createElement("div");
    host.className = "kvx-plot";
    host.setAttribute("role", "img");
    host.setAttribute("aria-label", figure.dataset.label);
    const keys = document.createElement("ul");
    keys.className = "kvx-keys";
    const show = (at) => keys.replaceChildren(...drawn.map((line) => {
      const item = document.createElement("li"), key = document.createElement("i");
      key.style.borderColor = `var(${line.color})`;
      key.className = line.dash ? "dashed" : "";
      const value = at === null || at === undefined ? undefined : line.values[at];
      item.append(key, line.name + (value === undefined ? "" : ` ${value.toFixed(1)} %`));
      return item;
    }), Object.assign(document.createElement("li"), { textContent: at === null || at === undefined ? "" : `at ${sizes[at].toLocaleString("en")} blocks` }));
    figure.replaceChildren(host, keys);
    plot(host, { sizes, lines: drawn, xlabel: "capacity (blocks)", ylabel: "hit ratio (%)", least: 100, onHover: show });
    show(null);
  }

  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".kvx-curves").forEach(enliven));
  return { plot, count };
})();
