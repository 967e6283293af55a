"use strict";
(() => {
  const data = JSON.parse(document.getElementById("numbers").textContent);
  const find = (id) => document.getElementById(id);
  const percent = (share) => `${(100 * share).toPrecision(3).replace(/\.0+$/, "")} %`;
  const few = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const fewest = new Intl.NumberFormat("en", { maximumSignificantDigits: 4, notation: "compact" });
  // Four digits, thousands with commas, as in the sentences.
  const short = (value) => (Math.abs(value) < 1e-4 ? String(Number(value.toPrecision(4))) : few.format(value));
  const three = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
  // The same on axes, where 599,000 is 599K.
  const brisk = (value) => (Math.abs(value) >= 1e4 ? fewest.format(value) : short(value));

  const brief = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

  function element(name, attributes = {}, text = null) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== null) node.textContent = text;
    return node;
  }

  // About `count` round numbers that cover [low, high].
  function ticks(low, high, count) {
    const rough = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough * 0.999);
    const out = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) out.push(Number((i * step).toPrecision(12)));
    return out;
  }

  // Draws a figure of the host's own width, so that text keeps its size on every screen.
  // `figure` has ranges x and y, labels, `draw(add, sx, sy)`, and `rows` that the pointer and the
  // arrow keys read out: {x, y, cells}, cells under `columns`.
  function draw(host, figure) {
    const width = Math.max(260, host.clientWidth), height = figure.square ? Math.min(width, 380) : (figure.height ?? 250);
    const { x, y } = figure;
    const xTicks = figure.xTicks ?? ticks(x[0], x[1], width > 420 ? 6 : 4).map((v) => [v, brisk(v)]);
    const yTicks = figure.yTicks ?? ticks(y[0], y[1], 5).map((v) => [v, brisk(v)]);
    // Tick labels have the room that they need beside the title of the axis.
    const letters = Math.max(...yTicks.map(([, text]) => text.length));
    const box = { left: Math.max(54, (figure.yLabel ? 24 : 14) + 7 * letters), right: 22, top: 10, bottom: 44 };
    const sx = (v) => box.left + ((v - x[0]) / (x[1] - x[0])) * (width - box.left - box.right);
    const sy = (v) => height - box.bottom - ((v - y[0]) / (y[1] - y[0])) * (height - box.top - box.bottom);
    const svg = element("svg", {
      viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: "0", "aria-label": figure.label,
    });
    const add = (name, attributes, text) => svg.appendChild(element(name, attributes, text));
    for (const [v] of yTicks) add("line", { class: "grid", x1: sx(x[0]), x2: sx(x[1]), y1: sy(v), y2: sy(v) });
    figure.draw(add, sx, sy);
    add("path", { class: "axis", d: `M${sx(x[0])} ${sy(y[1])}V${sy(y[0])}H${sx(x[1])}` });
    for (const [v, text] of yTicks) add("text", { x: box.left - 6, y: sy(v) + 4, "text-anchor": "end" }, text);
    for (const [v, text] of xTicks) add("text", { x: sx(v), y: height - box.bottom + 17, "text-anchor": "middle" }, text);
    add("text", { x: (sx(x[0]) + sx(x[1])) / 2, y: height - 8, "text-anchor": "middle" }, brief(figure.xLabel, Math.floor(width / 9)));
    add("text", { x: -(sy(y[0]) + sy(y[1])) / 2, y: 13, "text-anchor": "middle", transform: "rotate(-90)" }, figure.yLabel);

    const readout = document.createElement("p");
    readout.className = "readout";
    readout.setAttribute("aria-live", "polite");
    readout.textContent = figure.hint ?? "";
    const marks = [add("line", { class: "cursor", visibility: "hidden" }), add("circle", { class: "mark", r: 5, visibility: "hidden" })];
    let current = -1;
    function show(i) {
      current = i;
      for (const mark of marks) mark.setAttribute("visibility", i < 0 ? "hidden" : "visible");
      if (i < 0) { readout.textContent = figure.hint ?? ""; return; }
      const row = figure.rows[i], px = sx(row.x), py = sy(row.y);
      const cursor = figure.across
        ? { x1: sx(x[0]), x2: sx(x[1]), y1: py, y2: py }
        : { x1: px, x2: px, y1: sy(y[0]), y2: sy(y[1]) };
      for (const [key, value] of Object.entries(cursor)) marks[0].setAttribute(key, value);
      marks[1].setAttribute("cx", px);
      marks[1].setAttribute("cy", py);
      readout.textContent = figure.columns.map((name, k) => `${name} ${row.cells[k]}`).join(", ");
    }
    function nearest(event) {
      const bounds = svg.getBoundingClientRect();
      const px = ((event.clientX - bounds.left) / bounds.width) * width, py = event.clientY - bounds.top;
      const distance = (row) => (figure.across ? Math.abs(sy(row.y) - py) : Math.abs(sx(row.x) - px));
      let best = 0;
      figure.rows.forEach((row, i) => { if (distance(row) < distance(figure.rows[best])) best = i; });
      show(best);
    }
    svg.addEventListener("pointermove", nearest);
    svg.addEventListener("pointerdown", nearest);
    svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") show(-1); });
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      show(Math.min(figure.rows.length - 1, Math.max(0, current + step)));
    });

    const open = host.querySelector("details")?.open ?? false;
    host.replaceChildren(svg, readout, table(figure, open));
  }

  function table(figure, open) {
    const details = document.createElement("details");
    details.open = open;
    const summary = details.appendChild(document.createElement("summary"));
    summary.textContent = "Numbers";
    const scroll = details.appendChild(document.createElement("div"));
    scroll.className = "scroll";
    const body = scroll.appendChild(document.createElement("table"));
    const line = (cells, tag) => {
      const row = body.appendChild(document.createElement("tr"));
      for (const cell of cells) row.appendChild(document.createElement(tag)).textContent = cell;
    };
    line(figure.columns, "th");
    for (const row of figure.rows) line(row.cells, "td");
    return details;
  }

  const path = (xs, ys, sx, sy) => xs.map((v, i) => `${i ? "L" : "M"}${sx(v).toFixed(1)} ${sy(ys[i]).toFixed(1)}`).join("");
  const shares = [0, 0.25, 0.5, 0.75, 1].map((v) => [v, percent(v)]);
  const off = (share, low, high) => share < low || share > high;

  function reliability() {
    const part = data.reliability, band = part.band;
    return {
      label: "Reliability diagram: observed share against nominal level, with the band of chance",
      square: true, x: [0, 1], y: [0, 1], xTicks: shares, yTicks: shares,
      xLabel: "nominal level", yLabel: "observed share at or below", columns: ["level", "observed", "by chance"],
      hint: "Hover over the figure, or use the arrow keys, to read values.",
      rows: part.level.map((p, i) => ({
        x: p, y: part.observed[i],
        cells: [percent(p), percent(part.observed[i]), `${percent(part.low[i])} to ${percent(part.high[i])}`],
      })),
      draw(add, sx, sy) {
        const there = path(band.level, band.low, sx, sy);
        const back = path([...band.level].reverse(), [...band.high].reverse(), sx, sy).replace("M", "L");
        add("path", { class: "band", d: `${there}${back}Z` });
        add("path", { class: "ideal", d: path([0, 1], [0, 1], sx, sy) });
        add("path", { class: "curve", d: path(part.level, part.observed, sx, sy) });
        part.level.forEach((p, i) => add("circle", {
          class: off(part.observed[i], part.low[i], part.high[i]) ? "dot off" : "dot", r: 3.5, cx: sx(p), cy: sy(part.observed[i]),
        }));
      },
    };
  }

  function bars(add, sx, sy, edges, heights, classOf = () => "bar") {
    heights.forEach((h, i) => {
      const left = sx(edges[i]) + 0.5;
      add("rect", { class: classOf(i), x: left, width: Math.max(1, sx(edges[i + 1]) - 0.5 - left), y: sy(h), height: Math.max(0, sy(0) - sy(h)) });
    });
  }

  function pit() {
    const part = data.pit, expected = 1 / part.share.length;
    return {
      label: "PIT histogram, with the band of chance",
      square: true, x: [0, 1], y: [0, 1.08 * Math.max(part.high, ...part.share)],
      yTicks: ticks(0, 1.08 * Math.max(part.high, ...part.share), 4).map((v) => [v, percent(v)]),
      hint: `Dashed: ${percent(expected)}, the same in every bar.`,
      xLabel: "place in the predictive distribution", yLabel: "share of points",
      columns: ["from", "to", "share", "by chance"],
      rows: part.share.map((s, i) => ({
        x: (part.edges[i] + part.edges[i + 1]) / 2, y: s,
        cells: [short(part.edges[i]), short(part.edges[i + 1]), percent(s), `${percent(part.low)} to ${percent(part.high)}`],
      })),
      draw(add, sx, sy) {
        add("rect", { class: "band", x: sx(0), width: sx(1) - sx(0), y: sy(part.high), height: sy(part.low) - sy(part.high) });
        bars(add, sx, sy, part.edges, part.share, (i) => (off(part.share[i], part.low, part.high) ? "bar off" : "bar"));
        add("path", { class: "ideal", d: path([0, 1], [expected, expected], sx, sy) });
      },
    };
  }

  function widths(part) {
    const { edges, count } = part.widths;
    return {
      label: `Histogram of the widths of ${percent(part.coverage)} intervals`,
      x: [edges[0], edges[edges.length - 1]], y: [0, 1.08 * Math.max(...count)],
      xLabel: "width of the interval", yLabel: "points", columns: ["width from", "to", "points"],
      hint: `Mean width ${three.format(part.width)} at a coverage of ${percent(part.covered)}.`,
      rows: count.map((n, i) => ({ x: (edges[i] + edges[i + 1]) / 2, y: n, cells: [short(edges[i]), short(edges[i + 1]), String(n)] })),
      draw(add, sx, sy) {
        bars(add, sx, sy, edges, count);
        add("path", { class: "ideal", d: path([part.width, part.width], [0, 1.08 * Math.max(...count)], sx, sy) });
      },
    };
  }

  const targetLabel = (text) => brief(`${text} ${data.target}${data.unit ? ` (${data.unit})` : ""}`, 34);

  function points(k) {
    const part = data.points, lower = part.lower[k], upper = part.upper[k], coverage = data.intervals[k].coverage;
    const every = [...part.mean, ...part.y, ...lower, ...upper];
    const low = Math.min(...every), high = Math.max(...every), margin = 0.03 * (high - low || 1);
    const range = [low - margin, high + margin];
    const missed = (i) => part.y[i] < lower[i] || part.y[i] > upper[i];
    return {
      label: `Observed against predicted ${data.target}, with ${percent(coverage)} intervals`,
      square: true, x: [Math.min(...part.mean) - margin, Math.max(...part.mean) + margin], y: range,
      hint: "Dashed: observed as predicted. Lines are intervals.",
      xLabel: targetLabel("predicted"), yLabel: targetLabel("observed"),
      columns: ["row", "predicted", "observed", "interval"],
      rows: part.mean.map((m, i) => ({ x: m, y: part.y[i], cells: [String(part.row[i]), short(m), short(part.y[i]), `${short(lower[i])} to ${short(upper[i])}`] })),
      draw(add, sx, sy) {
        const [a, b] = [Math.min(...part.mean), Math.max(...part.mean)];
        part.mean.forEach((m, i) => add("line", { class: missed(i) ? "reach off" : "reach", x1: sx(m), x2: sx(m), y1: sy(lower[i]), y2: sy(upper[i]) }));
        add("path", { class: "ideal", d: path([a, b], [a, b], sx, sy) });
        part.mean.forEach((m, i) => add("circle", { class: missed(i) ? "dot off" : "dot", r: 2.5, cx: sx(m), cy: sy(part.y[i]) }));
      },
    };
  }

  function relevance() {
    const part = data.learned.relevance, n = part.length, most = Math.max(...part.map((f) => f.value), 1e-9);
    const letters = Math.min(window.innerWidth > 700 ? 24 : 18, Math.max(...part.map((f) => f.name.length)));
    return {
      label: "Relevance of the features", height: Math.max(120, 54 + 19 * n), x: [0, 1.05 * most], y: [-0.6, n - 0.4],
      yTicks: part.map((f, j) => [n - 1 - j, brief(f.name, letters)]), across: true,
      hint: "", xLabel: "change of predictions", yLabel: "", columns: ["feature", "change"],
      rows: part.map((f, j) => ({ x: f.value, y: n - 1 - j, cells: [f.name, short(f.value)] })),
      draw(add, sx, sy) {
        const size = Math.min(14, 0.7 * Math.abs(sy(1) - sy(0)));
        part.forEach((f, j) => add("rect", { class: "bar", x: sx(0), width: Math.max(1, sx(f.value) - sx(0)), y: sy(n - 1 - j) - size / 2, height: size }));
      },
    };
  }

  function covered(part, bins, xLabel) {
    const coverage = part.coverage, named = bins.some((b) => b.category);
    const lowest = Math.min(coverage, ...bins.flatMap((b) => [b.low, b.covered]));
    const floor = Math.max(0, Math.floor(10 * (lowest - 0.02)) / 10);
    const range = [floor, 1 + 0.03 * (1 - floor)];
    return {
      label: `Coverage of ${percent(coverage)} intervals by ${xLabel}, with the band of chance`,
      x: [0, bins.length], y: range,
      yTicks: ticks(floor, 1, 4).map((v) => [v, percent(v)]),
      // Dates do not fit beside one another on a phone: every second one does.
      xTicks: bins.map((b, i) => [i + 0.5, bins.length < 7 && (window.innerWidth > 700 || i % 2 === 0 || b.ends[1].length < 8) || named && i % 2 === 0 ? brief(b.ends[1], 12) : ""]),
      hint: `All points: ${percent(part.covered)} covered, ${percent(coverage)} claimed.`,
      xLabel: named ? brief(xLabel, 32) : `${brief(xLabel, 24)}, up to`, yLabel: "share covered",
      columns: [...(named ? ["category"] : ["from", "to"]), "points", "covered", "by chance"],
      rows: bins.map((b, i) => ({
        x: i + 0.5, y: b.covered,
        cells: [...(named ? [b.ends[0]] : b.ends), String(b.n), percent(b.covered), `${percent(b.low)} to ${percent(b.high)}`],
      })),
      draw(add, sx, sy) {
        bins.forEach((b, i) => {
          add("rect", { class: "band", x: sx(i + 0.12), width: sx(i + 0.88) - sx(i + 0.12), y: sy(b.high), height: sy(b.low) - sy(b.high) });
        });
        add("path", { class: "ideal", d: path([0, bins.length], [coverage, coverage], sx, sy) });
        bins.forEach((b, i) => add("circle", { class: off(b.covered, b.low, b.high) ? "dot off" : "dot", r: 5, cx: sx(i + 0.5), cy: sy(b.covered) }));
      },
    };
  }

  function beta() {
    const { delta, beta: scale, gauss, scores } = data.curves;
    const every = gauss ? [...scale, ...gauss] : scale;
    const low = Math.min(...every), high = Math.max(...every), margin = 0.05 * (high - low || 1);
    return {
      label: "The scale beta by level, with that of a Gaussian",
      x: [0, 1], y: [low - margin, high + margin], xTicks: shares,
      hint: gauss ? "Dashed: a Gaussian." : "",
      xLabel: "level δ", yLabel: scores ? "β, standard deviations" : "β, units of the target",
      columns: gauss ? ["level", "beta", "Gaussian"] : ["level", "beta"],
      rows: delta.map((d, i) => ({ x: d, y: scale[i], cells: [percent(d), short(scale[i]), ...(gauss ? [short(gauss[i])] : [])] })),
      draw(add, sx, sy) {
        if (gauss) add("path", { class: "ideal", d: path(delta, gauss, sx, sy) });
        add("path", { class: "curve", d: path(delta, scale, sx, sy) });
      },
    };
  }

  // Round ratios between 10^low and 10^high, as [log10, text].
  function ratios(low, high) {
    const marks = [];
    for (let k = Math.floor(low); k <= high; k++) for (const m of [1, 2, 5]) marks.push(Number(`${m}e${k}`));
    let shown = marks.filter((v) => Math.log10(v) >= low && Math.log10(v) <= high);
    if (shown.length > 7) shown = shown.filter((v) => Number.isInteger(Math.log10(v)));
    if (shown.length < 3) shown = ticks(10 ** low, 10 ** high, 4).filter((v) => v > 0);
    return shown.map((v) => [Math.log10(v), short(v)]);
  }

  function logRange(curves) {
    const logs = curves.flat().map(Math.log10);
    const low = Math.min(0, ...logs), high = Math.max(0, ...logs), margin = 0.06 * (high - low || 1);
    return [low - margin, high + margin];
  }

  function theta(chosen) {
    const { delta, theta: curves, names } = data.curves;
    const range = logRange(curves), log = curves.map((curve) => curve.map(Math.log10));
    return {
      label: "Hyperparameters theta by level, relative to the trained ones",
      x: [0, 1], y: range, xTicks: shares, yTicks: ratios(...range),
      hint: "Dashed: the trained value.",
      xLabel: "level δ", yLabel: "θ / trained θ", columns: ["level", names[chosen]],
      rows: delta.map((d, i) => ({ x: d, y: log[chosen][i], cells: [percent(d), short(curves[chosen][i])] })),
      draw(add, sx, sy) {
        add("path", { class: "ideal", d: path([0, 1], [0, 0], sx, sy) });
        log.forEach((curve, j) => { if (j !== chosen) add("path", { class: "curve faint", d: path(delta, curve, sx, sy) }); });
        add("path", { class: "curve", d: path(delta, log[chosen], sx, sy) });
      },
    };
  }

  // One theta for all levels: a dot per entry.
  function thetaEntries() {
    const { theta: curves, names } = data.curves;
    const values = curves.map((curve) => curve[0]), range = logRange([values]), n = values.length;
    const entryName = (name) => brief(name.replace("1/lengthscale of ", "").replace(" variance", ""), 12);
    return {
      label: "Hyperparameters theta, relative to the trained ones",
      height: Math.max(150, 54 + 19 * n), x: range, y: [-0.6, n - 0.4],
      xTicks: ratios(...range), yTicks: names.map((name, j) => [n - 1 - j, entryName(name)]),
      hint: "Dashed: the trained value. A feature stands for its inverse lengthscale.",
      xLabel: "θ / trained θ", yLabel: "", columns: ["entry", "ratio"], across: true,
      rows: values.map((v, j) => ({ x: Math.log10(v), y: n - 1 - j, cells: [names[j], short(v)] })),
      draw(add, sx, sy) {
        add("path", { class: "ideal", d: path([0, 0], [-0.6, n - 0.4], sx, sy) });
        values.forEach((v, j) => add("circle", { class: "dot", r: 4, cx: sx(Math.log10(v)), cy: sy(n - 1 - j) }));
      },
    };
  }

  function say(id, words) {
    const [shows, advice] = find(id).querySelectorAll("p");
    shows.textContent = words.shows;
    advice.textContent = words.advice;
    advice.className = `advice ${words.well ? "well" : "look"}`;
  }

  function choices(select, names, chosen) {
    names.forEach((name, j) => select.appendChild(new Option(name, String(j))));
    select.value = String(chosen);
    select.closest(".choice").hidden = names.length < 2;
  }

  const slider = find("coverage"), feature = find("feature"), entry = find("entry"), theme = find("theme");

  function drawIntervals() {
    const part = data.intervals[Number(slider.value)], j = Number(feature.value);
    const text = `${percent(part.coverage)} intervals: width ${three.format(part.width)}, covers ${percent(part.covered)}`;
    find("answer").textContent = text;
    slider.setAttribute("aria-valuetext", text);
    draw(find("points"), points(Number(slider.value)));
    draw(find("widths"), widths(part));
    draw(find("by-width"), covered(part, part.by_width, "width of the interval"));
    draw(find("by-feature"), covered(part, part.by_feature[j], data.features[j]));
    say("points-words", part.words.points);
    say("widths-words", part.words.widths);
    say("by-width-words", part.words.by_width);
    say("by-feature-words", part.words.by_feature[j]);
  }

  function drawTheta() {
    if (!data.curves || !data.curves.theta.length) return;
    draw(find("theta"), data.curves.by_level ? theta(Number(entry.value)) : thetaEntries());
  }

  function drawAll() {
    draw(find("reliability"), reliability());
    draw(find("pit"), pit());
    drawIntervals();
    if (data.learned.relevance.length) draw(find("relevance"), relevance());
    if (data.curves) draw(find("beta"), beta());
    drawTheta();
  }

  function setUpTheme() {
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
    const name = () => { theme.textContent = isDark() ? "Light" : "Dark"; theme.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`); };
    theme.addEventListener("click", () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; name(); });
    dark.addEventListener("change", name);
    theme.hidden = false;
    name();
  }

  slider.max = String(data.intervals.length - 1);
  slider.value = String(data.first.coverage);
  slider.closest(".controls").hidden = false;
  choices(feature, data.features, data.first.feature);
  if (data.curves && data.curves.by_level) {
    const reach = data.curves.theta.map((curve) => Math.max(...curve.map((v) => Math.abs(Math.log(v)))));
    choices(entry, data.curves.names, reach.indexOf(Math.max(...reach)));
  }
  slider.addEventListener("input", drawIntervals);
  feature.addEventListener("change", drawIntervals);
  entry.addEventListener("change", drawTheta);
  setUpTheme();
  drawAll();
  let width = document.body.clientWidth;
  window.addEventListener("resize", () => {
    if (document.body.clientWidth !== width) { width = document.body.clientWidth; drawAll(); }
  });
})();
