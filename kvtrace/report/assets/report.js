"use strict";
(() => {
  const root = document.documentElement;
  /* Both languages are in the page: words that differ are swapped, figures are drawn with them. */
  const other = JSON.parse(document.getElementById("other")?.textContent ?? "null");
  const LANG = "kvtrace-lang";
  const ownTexts = new Map();
  const ownAttributes = new Map();
  let isOther = false;
  const ownOf = (table, key) => (Object.hasOwn(table, key) ? table[key] : undefined);
  const translated = (text, { heads, map }) => {
    const head = text.split(":", 1)[0];
    const other = ownOf(heads, head);
    return ownOf(map, text) ?? (other === undefined ? text : other + text.slice(head.length));
  };
  const mapped = (value, change) => {
    if (typeof value === "string") return translated(value, change);
    if (Array.isArray(value)) return value.map((one) => mapped(one, change));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, mapped(v, change)]));
    }
    return value;
  };
  const dataOf = (id) => {
    const own = JSON.parse(document.getElementById(id).textContent);
    const change = isOther ? ownOf(other.blocks, id) : undefined;
    return change === undefined ? own : change.whole ?? mapped(own, change);
  };
  const swapWords = () => {
    isOther = !isOther;
    for (const element of document.querySelectorAll("[data-l]")) {
      if (!ownTexts.has(element)) ownTexts.set(element, element.innerHTML);
      element.innerHTML = isOther ? other.texts[element.dataset.l] : ownTexts.get(element);
    }
    for (const element of document.querySelectorAll("[data-la]")) {
      for (const [name, place] of element.dataset.la.split(" ").map((one) => one.split(":"))) {
        const own = ownAttributes.get(element) ?? {};
        own[name] ??= element.getAttribute(name);
        ownAttributes.set(element, own);
        element.setAttribute(name, isOther ? other.texts[place] : own[name]);
      }
    }
    words = dataOf("words");
  };
  const isLang = (name) => root.lang.split("-")[0] === name;
  const storedLang = () => {
    try {
      return window.localStorage.getItem(LANG);
    } catch {
      return null; /* storage is closed to files there */
    }
  };
  const askedLang = () => new URLSearchParams(window.location.search).get("lang")
    ?? new URLSearchParams(window.location.hash.slice(1)).get("lang");
  const takeLang = (name) => {
    const isNew = other !== null && ["en", "zh"].includes(name) && !isLang(name);
    if (isNew) swapWords();
    return isNew;
  };
  let words = dataOf("words");
  takeLang(askedLang() ?? storedLang());
  const status = document.getElementById("status");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  const charts = [...document.querySelectorAll(".chart")];
  const config = {
    displaylogo: false,
    showSendToCloud: false,
    responsive: true,
    displayModeBar: false, /* a button inside a figure that is an image is out of reach */
  };

  /* Colours are CSS variables, so that one figure serves both themes. */
  const resolve = (value, style) => {
    if (typeof value === "string" && value.startsWith("var(--")) {
      return style.getPropertyValue(value.slice(4, -1)).trim();
    }
    if (Array.isArray(value)) return value.map((one) => resolve(one, style));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, resolve(v, style)]));
    }
    return value;
  };
  const PRINT_WIDTH = 640; /* px: A4 without margins and the padding of a card */
  const NARROW = 480; /* px */
  const LEGEND_ROW = 19; /* px */
  let printing = false;
  /* The legend is a column there, and every second tick is enough. */
  const fitNarrow = (figure, element) => {
    const { layout } = figure;
    if (layout.showlegend) {
      layout.height += LEGEND_ROW * Math.max(0, figure.data.length - 2);
      element.style.height = `${layout.height}px`;
    }
    for (const [name, axis] of Object.entries(layout)) {
      if (name.startsWith("xaxis") && axis.tickvals?.length > 4) {
        axis.tickvals = axis.tickvals.filter((_, i) => i % 2 === 0);
        axis.ticktext = axis.ticktext.filter((_, i) => i % 2 === 0);
      }
    }
  };
  const draw = (element) => {
    const figure = resolve(dataOf(`${element.id}-data`), getComputedStyle(root));
    element.style.height = `${figure.layout.height}px`; /* a resize measures the element */
    if (printing) figure.layout.width = PRINT_WIDTH;
    else if (element.clientWidth < NARROW) fitNarrow(figure, element);
    return Plotly.react(element, figure.data, figure.layout, config).then(() => {
      element.dataset.drawn = "true";
    });
  };
  /* A chart inside a closed fold has no width: it is drawn when the fold opens. */
  const isShown = (element) => element.closest("details:not([open])") === null;
  const drawAll = () => Promise.all(charts.filter(isShown).map(draw));
  document.addEventListener("toggle", (event) => {
    if (!event.target.open || printing) return;
    charts.filter((one) => event.target.contains(one) && isShown(one)).forEach(draw);
  }, true);

  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const toggle = document.getElementById("theme");
  const label = () => {
    toggle.textContent = isDark() ? words.to_light : words.to_dark;
  };
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    label();
    drawAll();
  });
  const language = document.getElementById("language");
  language.hidden = other === null;
  language.addEventListener("click", () => {
    swapWords();
    try {
      window.localStorage.setItem(LANG, root.lang.split("-")[0]);
    } catch {
      /* it is asked again next time */
    }
    label();
    drawAll();
  });
  dark.addEventListener("change", () => {
    label();
    drawAll();
  });
  label();

  /* Print: light, all folds open but the tables behind figures; afterwards as it was. */
  let kept = null;
  window.addEventListener("beforeprint", () => {
    const closed = [...document.querySelectorAll("details:not([open]):not(.data)")];
    kept = { theme: root.dataset.theme, closed };
    root.dataset.theme = "light";
    printing = true;
    closed.forEach((one) => { one.open = true; });
    drawAll();
  });
  window.addEventListener("afterprint", () => {
    if (kept === null) return;
    if (kept.theme) root.dataset.theme = kept.theme;
    else delete root.dataset.theme;
    kept.closed.forEach((one) => { one.open = false; });
    kept = null;
    printing = false;
    const drawn = charts.filter(isShown);
    drawAll().then(() => drawn.forEach((one) => Plotly.Plots.resize(one)));
  });

  /* Copy: a table as CSV or Markdown, a command as it stands. */
  const rowsOf = (table) => [...table.rows].map((row) => [...row.cells].map((cell) =>
    cell.dataset.name ?? cell.dataset.exact ?? cell.textContent.trim()));
  const quote = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  /* Columns that hold one value in every row stand once on the page, and in every row of a copy. */
  const constantOf = (table) => (table.dataset.constant ?? "").split("\n").filter(Boolean)
    .map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]);
  const asText = {
    csv: (table) => rowsOf(table)
      .map((row, i) => [...row, ...constantOf(table).map((pair) => pair[i === 0 ? 0 : 1])])
      .map((row) => row.map(quote).join(",")).join("\n"),
    svg: async (chart) => {
      const [, svg] = (await Plotly.toImage(chart, { format: "svg" })).split(/,(.*)/s);
      return decodeURIComponent(svg);
    },
    markdown: (table) => {
      const [head, ...body] = [...table.rows].map((row) =>
        `| ${[...row.cells].map((cell) => cell.textContent.trim().replaceAll("|", "\\|")).join(" | ")} |`);
      return [head, `|${" --- |".repeat(table.rows[0].cells.length)}`, ...body].join("\n");
    },
  };
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest(".copy");
    if (button === null) return;
    const target = document.getElementById(button.dataset.target);
    const text = button.dataset.as ? await asText[button.dataset.as](target) : target.textContent;
    status.textContent = (await copy(text)) ? words.copied : words.not_copied;
    const before = button.textContent;
    button.textContent = status.textContent;
    window.setTimeout(() => { button.textContent = before; }, 1400);
  });

  /* The requests of the drill-down, by kind and prompt length. */
  const filter = document.getElementById("drill-filter");
  if (filter !== null) {
    const rows = [...document.querySelectorAll("#drill-list > li")];
    const count = document.getElementById("drill-count");
    const choices = [...filter.querySelectorAll("select")];
    const choose = () => {
      for (const row of rows) {
        const isWanted = choices.every((one) => one.value === "" || row.dataset[one.name] === one.value);
        row.hidden = !isWanted;
      }
      const shown = rows.filter((row) => !row.hidden).length;
      count.textContent = count.dataset.text.replace("#shown", shown).replace("#of", rows.length);
    };
    filter.hidden = false;
    filter.addEventListener("change", choose);
  }

  /* A link to a finding, a question or a table opens everything around it. */
  const unfold = () => {
    const target = document.getElementById(decodeURIComponent(window.location.hash.slice(1)));
    if (target === null) return;
    let opened = false;
    for (let box = target.closest("details"); box !== null; box = box.parentElement.closest("details")) {
      opened ||= !box.open;
      box.open = true;
    }
    if (opened) target.scrollIntoView({ behavior: still.matches ? "auto" : "smooth" });
  };
  window.addEventListener("hashchange", () => {
    if (takeLang(askedLang())) {
      label();
      drawAll();
    }
    unfold();
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link !== null && link.hash === window.location.hash) unfold();
  });

  const links = new Map([...document.querySelectorAll(".toc a")].map((a) => [a.hash.slice(1), a]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      links.forEach((a) => a.removeAttribute("aria-current"));
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-8% 0px -80% 0px" });
  links.forEach((_, id) => {
    const target = document.getElementById(id);
    if (target) seen.observe(target);
  });

  drawAll().then(() => {
    root.dataset.ready = "true";
    unfold();
  });
})();
