"use strict";
(() => {
  // Tables: a click on a title sorts the rows by its column.

  const UNITS = { k: 1e3, M: 1e6, G: 1e9 };

  /** The number that a cell begins with, such as "95.6 ±0.6" or "271k"; null for none. */
  function number(text) {
    const found = /^([+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)([kMG]?)(?:\s|$)/.exec(text.trim());
    return found ? Number(found[1]) * (UNITS[found[2]] ?? 1) : null;
  }

  function compare(a, b) {
    const [one, other] = [number(a), number(b)];
    if (one !== null && other !== null) return one - other;
    if (one === null && other === null) return a.localeCompare(b);
    return one === null ? 1 : -1;
  }

  function sort(table, column) {
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const text = (row) => row.cells[column].textContent.trim();
    const filled = rows.filter((row) => text(row) !== "-");
    const empty = rows.filter((row) => text(row) === "-"); // stay last in both directions
    const numbers = filled.every((row) => number(text(row)) !== null);
    const now = heads[column].ariaSort;
    // Numbers begin with the largest, names with the first letter.
    const first = numbers ? "descending" : "ascending";
    const second = numbers ? "ascending" : "descending";
    const order = now === first ? second : first;
    const sign = order === "ascending" ? 1 : -1;
    filled.sort((a, b) => sign * compare(text(a), text(b)));
    body.append(...filled, ...empty);
    heads.forEach((head, place) => {
      head.ariaSort = place === column ? order : "none";
    });
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => sort(table, column));
    });
  }

  // Colours: those of the pictures on a light page, lighter ones where they would be too dark.

  const dark = matchMedia("(prefers-color-scheme: dark)");
  let printing = false;
  const isDark = () => dark.matches && !printing;
  const LIGHT_SCALE = [
    [0, "#f7fbff"],
    [0.25, "#c6dbef"],
    [0.5, "#6baed6"],
    [0.75, "#2171b5"],
    [1, "#08306b"],
  ];
  const DARK_SCALE = [
    [0, "#1b222a"],
    [0.25, "#1d4067"],
    [0.5, "#2f74b5"],
    [0.75, "#7db3e3"],
    [1, "#e6f2fd"],
  ];

  /** A colour, "#rrggbb" or "rgba(r, g, b, a)", as it can be seen on the present page. */
  function readable(colour) {
    const hex = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})$/i.exec(colour);
    const rgba = /^rgba\((\d+), (\d+), (\d+), ([\d.]+)\)$/.exec(colour);
    if (!isDark() || !(hex || rgba)) return colour;
    const parts = (hex ?? rgba).slice(1, 4).map((part) => parseInt(part, hex ? 16 : 10));
    const light = (0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2]) / 255;
    const mix = Math.max(0, (0.52 - light) / (1 - light));
    // Greys turn round, so that black and grey remain two colours.
    const isGrey = parts.every((part) => part === parts[0]);
    const seen = parts.map((part) =>
      isGrey ? Math.max(64, 255 - part) : Math.round(part + (255 - part) * mix),
    );
    return `rgba(${seen.join(", ")}, ${rgba ? rgba[4] : 1})`;
  }

  function themed(figure) {
    const { data, layout } = structuredClone(figure);
    const style = getComputedStyle(document.documentElement);
    const [text, faint, line, raised] = ["--text", "--faint", "--line", "--raised"].map((name) =>
      printing || !isDark()
        ? { "--text": "#1d2329", "--faint": "#5b6570", "--line": "#dde2e7", "--raised": "#ffffff" }[name]
        : style.getPropertyValue(name).trim(),
    );
    layout.paper_bgcolor = "rgba(0,0,0,0)";
    layout.plot_bgcolor = "rgba(0,0,0,0)";
    layout.font = { family: getComputedStyle(document.body).fontFamily, size: 13, color: text };
    layout.hoverlabel = { bgcolor: raised, bordercolor: faint, font: { color: text } };
    layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: faint, activecolor: text };
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis/.test(key))) {
      const axis = layout[name];
      Object.assign(axis, { gridcolor: line, linecolor: line, tickcolor: line });
    }
    const across = layout.xaxis.title?.text;
    if (across) layout.xaxis.unifiedhovertitle = { text: `${across} %{x}` };
    for (const trace of data) {
      if (trace.line?.color) trace.line.color = readable(trace.line.color);
      if (trace.fillcolor) trace.fillcolor = readable(trace.fillcolor);
      if (trace.marker?.color) trace.marker.color = readable(trace.marker.color);
      if (trace.type === "heatmap") trace.colorscale = isDark() ? DARK_SCALE : LIGHT_SCALE;
    }
    return { data, layout };
  }

  // Panels: a figure, the choice between views, the slider over rounds.

  const OPTIONS = {
    responsive: true,
    displaylogo: false,
    // Fingers have no place to hover; they zoom and pan as on other pages.
    displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  };
  const panels = [...document.querySelectorAll(".panel")].map((element) => {
    const plot = element.querySelector(".plot");
    const select = element.querySelector("select");
    const label = element.querySelector(".slider");
    const slider = label?.querySelector("input");
    const views = JSON.parse(element.querySelector("script").textContent);
    const narrow = () => element.clientWidth < 560;

    function show() {
      const view = views[select ? select.selectedIndex : 0];
      const { data, layout } = themed(view.figure);
      if (view.frames) {
        const frame = view.frames[slider.value];
        data[0].x = data[0].y = frame.clients;
        data[0].z = frame.z;
        layout.shapes = frame.shapes;
        label.querySelector("output").value = `${frame.round} of ${view.rounds}`;
      }
      for (const trace of data) {
        if (narrow() && trace.colorbar) trace.showscale = false; // the tooltip has the number
      }
      if (view.frames) plot.style.height = `${Math.min(520, plot.clientWidth)}px`;
      Plotly.react(plot, data, layout, OPTIONS);
    }

    /** The slider of the chosen view, at its last round. */
    function aim() {
      const view = views[select ? select.selectedIndex : 0];
      if (label) {
        label.hidden = !view.frames || view.frames.length < 2;
        slider.max = (view.frames?.length ?? 1) - 1;
        slider.value = slider.max;
      }
    }

    select?.addEventListener("change", () => {
      aim();
      show();
    });
    slider?.addEventListener("input", show);
    aim();
    return show;
  });

  function draw() {
    for (const mark of document.querySelectorAll(".mark")) {
      mark.style.background = readable(mark.dataset.colour);
    }
    panels.forEach((one) => one());
  }
  draw();
  dark.addEventListener("change", draw);
  addEventListener("beforeprint", () => {
    printing = true;
    draw();
  });
  addEventListener("afterprint", () => {
    printing = false;
    draw();
  });
})();
