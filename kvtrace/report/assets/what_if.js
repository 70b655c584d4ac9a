"use strict";
/* The what-if of the page. The formulas are those of kvtrace/audit/what_if/formulas.py, function by
   function and name by name; a test drives both over a grid. No word stands here: the page has them. */
(() => {
  const ROUNDING = 1e-9;
  const GB = 1e9;
  const sum = (values) => values.reduce((total, one) => total + one, 0);

  const readSetting = (model, positions) => {
    const place = {};
    const value = {};
    const first = {};
    for (const slider of model.sliders) {
      place[slider.id] = positions[slider.id] ?? slider.base;
      value[slider.id] = slider.values[place[slider.id]];
      first[slider.id] = slider.values[slider.base];
    }
    return {
      speed: value.link_speed / first.link_speed,
      poolBytes: value.pool_size,
      dtype: place.kv_dtype,
      narrow: value.kv_dtype / first.kv_dtype,
      load: value.load,
      gpuUsd: value.gpu_price,
      dramUsd: value.dram_price,
    };
  };

  const curveRatio = (model, capacity) => {
    const sizes = model.curve_bytes;
    const ratios = model.curve_ratio;
    if (sizes.length === 0) return 1;
    if (capacity <= sizes[0]) return (ratios[0] * capacity) / sizes[0];
    for (let i = 1; i < sizes.length; i += 1) {
      if (capacity <= sizes[i]) {
        const share = Math.log2(capacity / sizes[i - 1]) / Math.log2(sizes[i] / sizes[i - 1]);
        return ratios[i - 1] + share * (ratios[i] - ratios[i - 1]);
      }
    }
    return ratios[ratios.length - 1];
  };

  const serve = (model, fleet, at) => {
    const scaled = (tokens, now, base) => {
      const ratio = curveRatio(model, base);
      return ratio > 0 ? (tokens * curveRatio(model, now)) / ratio : tokens;
    };
    const most = fleet.ceiling_tokens;
    const { hbm, pool, rival } = fleet;
    const own = Math.min(scaled(hbm.hit_tokens, hbm.capacity_bytes / at.narrow, hbm.capacity_bytes), most);
    const whole = scaled(pool.hit_tokens, at.poolBytes / (at.narrow * at.load), pool.capacity_bytes);
    const other = scaled(rival.hit_tokens, rival.capacity_bytes / at.narrow, rival.capacity_bytes);
    return { total: Math.min(Math.max(whole, own), most), hbm: own, rival: Math.min(other, most) };
  };

  const poolNodes = (money, at) => {
    if (money.node_bytes <= 0) return money.nodes;
    return Math.max(1, Math.ceil(at.poolBytes / money.node_bytes - ROUNDING));
  };

  const fleetSize = (fleet, at) => Math.max(1, Math.ceil(fleet.instances * at.load - ROUNDING));

  const linkRate = (link, model, at) => {
    let rate = link.usable_bytes_per_s;
    if (link.port_bytes_per_s !== null) {
      rate = link.port_bytes_per_s * at.speed;
      if (link.cap_bytes_per_s !== null) rate = Math.min(rate, link.cap_bytes_per_s);
    }
    const { money } = model;
    if (link.grows_with_nodes && money !== null && money.node_bytes > 0) {
      rate *= poolNodes(money, at) / money.nodes;
    }
    return rate;
  };

  const linkUses = (model, at, served, rates) => {
    const { fleet } = model;
    if (fleet === null) return [];
    const loaded = fleet.pool.hit_tokens - fleet.hbm.hit_tokens;
    const computed = fleet.prompt_tokens - fleet.pool.hit_tokens;
    const read = loaded > 0 ? (served.total - served.hbm) / loaded : 1;
    const written = computed > 0 ? (fleet.prompt_tokens - served.total) / computed : 1;
    const more = fleetSize(fleet, at) / fleet.instances;
    return model.links.map((link, i) => {
      const links = link.is_shared ? link.links : link.links * more;
      const moved = (link.bytes_read * read + link.bytes_written * written) * at.narrow * at.load;
      const mean = moved / fleet.replay_s / links;
      return {
        link_id: link.link_id,
        usable_bytes_per_s: rates[i],
        mean_bytes_per_s: mean,
        utilisation: mean / rates[i],
        p99_utilisation: link.p99_over_mean === null ? null : (mean * link.p99_over_mean) / rates[i],
      };
    });
  };

  const stageRates = (model, rates) =>
    model.stages.map((stage) => Math.min(...stage.links.map((i) => rates[i])));

  const fixedSeconds = (model) => model.lookup_s + sum(model.stages.map((stage) => stage.latency_s));

  const leastTokens = (model, at, path, fixed) => {
    const { lengths } = model;
    if (lengths === null) return null;
    let before = 0;
    for (let i = 0; i < lengths.cached_tokens.length; i += 1) {
      const cached = lengths.cached_tokens[i];
      const gain = lengths.recompute_s[i] - (fixed + lengths.kv_bytes[at.dtype][i] / path);
      if (gain > 0) {
        if (i === 0) return cached;
        const start = lengths.cached_tokens[i - 1];
        return Math.ceil(start + (cached - start) * (-before / (gain - before)) - ROUNDING);
      }
      before = gain;
    }
    return null;
  };

  const breakEven = (results, model, at, path) => {
    const { hit } = model;
    if (hit === null) return;
    const fixed = fixedSeconds(model);
    const size = hit.kv_bytes[at.dtype];
    const spare = hit.recompute_s - fixed;
    results.kv_bytes = size;
    results.recompute_s = hit.recompute_s;
    results.move_s = fixed + size / path;
    results.needed_bytes_per_s = spare > 0 ? size / spare / model.kv_ranks : null;
    results.break_even_tokens = leastTokens(model, at, path, fixed);
  };

  const movesAlone = (size, model, rates, uses) => {
    let seconds = fixedSeconds(model);
    const each = stageRates(model, rates);
    for (let i = 0; i < each.length; i += 1) {
      const busy = uses.length ? Math.max(...model.stages[i].links.map((k) => uses[k].utilisation)) : 0;
      if (busy >= 1) return null;
      seconds += size / each[i] / (1 - busy);
    }
    return seconds;
  };

  const moveOf = (bucket, model, at, rates, uses) => {
    const seconds = movesAlone(bucket.moved_bytes * at.narrow, model, rates, uses);
    return {
      prompt_bucket: bucket.prompt_bucket,
      move_s: seconds === null ? null : bucket.residual * seconds,
      recompute_s: bucket.recompute_s,
    };
  };

  const workGpuSeconds = (fleet, tokens) => {
    const hits = fleet.work_hit_tokens;
    const work = fleet.work_gpu_s;
    const last = hits.length - 1;
    if (last === 0) return work[0];
    let i = 1;
    while (i < last && tokens > hits[i]) i += 1;
    const slope = (work[i] - work[i - 1]) / (hits[i] - hits[i - 1]);
    return Math.max(0, work[i] + slope * (tokens - hits[i]));
  };

  const hoursShare = (profile, saved, of) => {
    if (profile.length === 0) return 1;
    const gone = Math.min(Math.max(1, Math.floor(saved + 0.5)), of);
    const needed = (count, hour) => Math.max(1, Math.ceil(count * hour - ROUNDING));
    return sum(profile.map((hour) => needed(of, hour) - needed(of - gone, hour))) / (gone * profile.length);
  };

  const extraCost = (money, fleet, at) => {
    const more = fleetSize(fleet, at) / fleet.instances;
    const line = money.port_bits_per_s * at.speed;
    const ports = money.ports.find((one) => one.upto_bits_per_s === null || line <= one.upto_bits_per_s);
    const gb = money.node_bytes > 0 ? at.poolBytes / GB : 0;
    const slope = gb * money.gb_usd_per_dram_usd - money.rival_usd_per_dram_usd * more;
    const fixed = money.pool_usd + poolNodes(money, at) * ports.node_usd + ports.gpu_nodes_usd * more;
    return [fixed + gb * money.gb_usd - money.rival_usd * more + slope * at.dramUsd, slope];
  };

  const saving = (results, fleet, money, at, served) => {
    results.hit_ratio = served.total / fleet.prompt_tokens;
    results.rival_hit_ratio = served.rival / fleet.prompt_tokens;
    results.extra_hit_ratio = (served.total - served.rival) / fleet.prompt_tokens;
    const spared = (workGpuSeconds(fleet, served.rival) - workGpuSeconds(fleet, served.total)) * at.load;
    const freed = Math.max(0, spared) / fleet.gpus_per_instance / fleet.span_s / fleet.busy_share;
    const of = fleetSize(fleet, at);
    const whole = Math.max(0, Math.min(Math.floor(freed * fleet.whole_share), of - 1));
    results.freed_instances = freed;
    results.whole_instances = whole;
    if (money === null) return;
    const each = money.instance_usd_per_gpu_usd * at.gpuUsd;
    const share = hoursShare(money.profile, whole, of);
    results.gpu_hours_per_month = whole * fleet.gpus_per_instance * money.hours_per_month * share;
    const saved = whole * each * share;
    const unrounded = Math.min(freed, fleet.instances * at.load) * each * hoursShare(money.profile, freed, of);
    const [cost, slope] = extraCost(money, fleet, at);
    results.saving_usd = saved;
    results.unrounded_usd = unrounded;
    results.cost_usd = cost;
    results.net_usd = saved - cost;
    results.unrounded_net_usd = unrounded - cost;
    if (saved > 0) results.break_even_gpu_usd = Math.max(0, (cost * at.gpuUsd) / saved);
    if (slope > 0) {
      const price = (saved - (cost - slope * at.dramUsd)) / slope;
      results.break_even_dram_usd = price >= 0 ? price : null;
    }
  };

  const NOTHING = [
    "needed_bytes_per_s", "move_s", "recompute_s", "kv_bytes", "break_even_tokens", "hit_ratio",
    "rival_hit_ratio", "extra_hit_ratio", "freed_instances", "whole_instances", "gpu_hours_per_month",
    "saving_usd", "unrounded_usd", "cost_usd", "net_usd", "unrounded_net_usd", "break_even_gpu_usd",
    "break_even_dram_usd",
  ];

  const evaluate = (model, positions = {}) => {
    const at = readSetting(model, positions);
    const served = model.fleet === null ? null : serve(model, model.fleet, at);
    const rates = model.links.map((link) => linkRate(link, model, at));
    const uses = served === null ? [] : linkUses(model, at, served, rates);
    const path = 1 / sum(stageRates(model, rates).map((rate) => 1 / rate));
    const results = Object.fromEntries(NOTHING.map((name) => [name, null]));
    results.path_bytes_per_s = path / model.kv_ranks;
    results.links = uses;
    breakEven(results, model, at, path);
    results.moves = model.buckets.map((bucket) => moveOf(bucket, model, at, rates, uses));
    if (served !== null) saving(results, model.fleet, model.money, at, served);
    return results;
  };

  /* Numbers as kvtrace/report/format.py writes them. */
  const grouped = (text) => {
    const [whole, part] = text.split(".");
    const commas = whole.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
    return part === undefined ? commas : `${commas}.${part}`;
  };
  /* Exact halves go to the even digit, as in Python; only multiples of 2^-(places + 1) can be halves. */
  const toPlaces = (value, places) => {
    const scaled = value * 10 ** places;
    const isHalf = Number.isInteger(value * 2 ** (places + 1)) && Math.abs(scaled % 1) === 0.5;
    if (!isHalf) return value.toFixed(places);
    const below = Math.floor(scaled);
    return ((below % 2 === 0 ? below : below + 1) / 10 ** places).toFixed(places);
  };
  const general = (value, digits) => {
    if (value === 0) return "0";
    const [mantissa, power] = value.toExponential(digits - 1).split("e");
    const exponent = Number(power);
    const trim = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
    if (exponent < -4 || exponent >= digits) {
      const sign = exponent < 0 ? "-" : "+";
      return `${trim(mantissa)}e${sign}${String(Math.abs(exponent)).padStart(2, "0")}`;
    }
    return grouped(trim(toPlaces(value, Math.max(0, digits - 1 - exponent))));
  };
  const fixed = (value, places) => grouped(toPlaces(value, places));
  const inUnits = (value, units, digits = 4) => {
    for (const [unit, size] of units) {
      if (Math.abs(value) >= size) return `${general(value / size, digits)} ${unit}`;
    }
    return `${fixed(value, 0)} B`;
  };
  const MOVED = [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]];
  const HELD = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];
  const count = (value) => {
    if (Number.isInteger(value)) return grouped(String(value));
    if (Math.abs(value) < 1e-9) return "0";
    return Math.abs(value) < 10_000 ? general(value, 4) : fixed(value, 0);
  };
  const seconds = (value) => {
    const magnitude = Math.abs(value);
    if (magnitude > 0 && magnitude < 1e-6) return `${general(value * 1e9, 3)} ns`;
    if (magnitude < 1) return `${general(value * 1000, 3)} ms`;
    if (magnitude < 10) return `${fixed(value * 1000, 0)} ms`;
    if (magnitude < 600) return `${fixed(value, 1)} s`;
    return magnitude < 10_800 ? `${fixed(value / 60, 1)} min` : `${fixed(value / 3600, 1)} h`;
  };
  const ratio = (value) => {
    const percent = value * 100;
    if (percent !== 0 && Math.abs(percent) < 0.1) return `${general(percent, 2)} %`;
    return `${fixed(percent, 2).replace(/\.00$/, "")} %`;
  };
  const usd = (value) => {
    const magnitude = Math.abs(value);
    const sign = value < 0 ? "-" : "";
    if (magnitude >= 100) return `${sign}$${fixed(magnitude, 0)}`;
    if (magnitude === 0) return "$0";
    return `${sign}$${magnitude >= 0.1 ? fixed(magnitude, 2) : general(magnitude, 3)}`;
  };
  const noun = (unit, value) => (value === 1 && unit.length > 3 && /^[a-z]+s$/i.test(unit) ? unit.slice(0, -1) : unit);
  const WRITE = {
    "bytes/s": (value) => `${inUnits(value, MOVED)}/s`,
    bytes: (value) => inUnits(value, HELD),
    s: seconds,
    ratio,
  };
  const write = (value, unit) => {
    const amount = unit.startsWith("USD") ? `${usd(value)}${unit.slice(3)}` : null;
    const text = amount ?? WRITE[unit]?.(value) ?? `${count(value)} ${noun(unit, value)}`;
    return text.replaceAll(" ", "\u00a0").replace(/^-/, "\u2212");
  };

  globalThis.kvtraceWhatIf = { evaluate, write };

  const box = globalThis.document?.getElementById("what-if");
  if (!box) return;
  const model = JSON.parse(document.getElementById("what-if-data").textContent);
  const inputs = [...box.querySelectorAll("input[type=range]")];
  const texts = new Map(inputs.map((input) => [input, JSON.parse(input.dataset.texts)]));
  const reset = box.querySelector("button[data-reset]");
  const isMoved = () => inputs.some((input) => input.value !== input.dataset.base);

  /* An output names its place in the results: `net_usd`, `links.0.utilisation`. */
  const find = (results, place) => place.split(".").reduce((part, key) => part?.[key] ?? null, results);
  const CONDITIONS = {
    move_wins: (results) => results.move_s !== null && results.move_s < results.recompute_s,
    recompute_wins: (results) => results.move_s !== null && results.move_s >= results.recompute_s,
    pays: (results) => results.net_usd !== null && results.net_usd > 0,
    costs: (results) => results.net_usd !== null && results.net_usd <= 0,
  };
  const show = (positions) => {
    const results = evaluate(model, positions);
    for (const output of box.querySelectorAll("output[data-out]")) {
      const value = find(results, output.dataset.out);
      output.textContent = value === null ? "" : write(value, output.dataset.unit);
      output.hidden = value === null;
      const none = output.nextElementSibling;
      if (none?.matches("[data-none]")) none.hidden = value !== null;
    }
    for (const line of box.querySelectorAll("[data-when]")) {
      line.hidden = !CONDITIONS[line.dataset.when](results);
    }
    for (const row of box.querySelectorAll("[data-link]")) {
      const use = results.links[row.dataset.link];
      const peak = use.p99_utilisation ?? use.utilisation;
      row.classList.toggle("over", peak >= Number(row.dataset.limit));
    }
    for (const row of box.querySelectorAll("[data-move]")) {
      const one = results.moves[row.dataset.move];
      row.classList.toggle("over", one.move_s === null || one.move_s >= one.recompute_s);
    }
  };
  const chosen = () => Object.fromEntries(inputs.map((input) => [input.name, Number(input.value)]));
  const tell = (input) => {
    const text = texts.get(input)[Number(input.value)];
    input.setAttribute("aria-valuetext", text);
    box.querySelector(`output[data-of="${input.name}"]`).textContent = text;
    input.closest(".dial").classList.toggle("moved", input.value !== input.dataset.base);
  };
  const refresh = () => {
    inputs.forEach(tell);
    reset.disabled = !isMoved();
    box.classList.toggle("moved", isMoved());
    show(chosen());
  };
  inputs.forEach((input) => {
    input.disabled = input.dataset.fixed === "true";
    input.addEventListener("input", refresh);
  });
  const toBase = () => inputs.forEach((input) => { input.value = input.dataset.base; });
  reset.hidden = false;
  reset.addEventListener("click", () => {
    toBase();
    refresh();
    inputs.find((input) => !input.disabled)?.focus();
  });

  /* Paper shows the audit's own position. */
  let kept = null;
  window.addEventListener("beforeprint", () => {
    kept = inputs.map((input) => input.value);
    toBase();
    refresh();
  });
  window.addEventListener("afterprint", () => {
    if (kept === null) return;
    inputs.forEach((input, i) => { input.value = kept[i]; });
    kept = null;
    refresh();
  });
  refresh();
})();
