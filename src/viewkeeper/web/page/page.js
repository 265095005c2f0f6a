// The page of a running Viewkeeper: it shows what server-sent events bring, and asks for little else.
// Whatever comes from users or databases becomes text nodes: nothing here writes HTML.
"use strict";

const $ = (id) => document.getElementById(id);
let news = null;
let shownView = null;
let heardAt = 0;

function element(name, facts = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(facts)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") made.className = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...inside.filter((each) => each !== null && each !== undefined));
  return made;
}

function drawn(name, facts = {}, ...inside) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(facts)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

// -- words ------------------------------------------------------------------------------------

const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));

function span(seconds) {
  if (seconds === null || seconds === undefined) return "?";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${Math.floor(seconds % 60)}s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h ${Math.floor((seconds % 3600) / 60)}m`;
  return `${Math.floor(seconds / 86400)}d ${Math.floor((seconds % 86400) / 3600)}h`;
}

function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let step = 0;
  while (bytes >= 1000 && step < units.length - 1) { bytes /= 1000; step += 1; }
  return `${bytes >= 100 || step === 0 ? Math.round(bytes) : bytes.toFixed(1)} ${units[step]}`;
}

const rate = (value) => (value >= 10 ? number(Math.round(value)) : value > 0 ? value.toFixed(1) : "0");
const counted = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
const clock = (at) => new Date(at * 1000).toISOString().slice(11, 19);
const moment = (at) => element("time", { datetime: new Date(at * 1000).toISOString() }, clock(at));
const day = (at) => new Date(at * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";

const STATES = {
  fresh: ["good", "●", "up to date"], behind: ["good", "◐", "catching up"],
  waiting: ["warn", "◔", "waits"],
  loading: ["warn", "◌", "loading"], unloaded: ["warn", "○", "not loaded yet"],
  refreshing: ["warn", "↻", "loads again"], refused: ["warn", "▲", "goes on by its stored SQL"],
  removed: ["warn", "▲", "its file is gone"],
  held: ["warn", "▲", "held: needs approval"], stopped: ["bad", "✕", "stopped"],
  followed: ["good", "●", "connected"], "not followed": ["", "○", "not followed"],
  away: ["bad", "✕", "away"],
};

function stateText(state) {
  const [tone, sign, words] = STATES[state] || ["", "", state];
  return element("span", { class: tone }, element("span", { "aria-hidden": "true" }, `${sign} `), words);
}

// -- rows that stay where they are while their cells change --------------------------------------

function fillTable(body, items, keyOf, cellsOf) {
  const labels = [...body.parentElement.querySelectorAll("th")].map((each) => each.textContent);
  const known = new Map([...body.children].map((row) => [row.dataset.key, row]));
  items.forEach((item, place) => {
    const key = String(keyOf(item));
    const row = known.get(key) || element("tr", { role: "row", "data-key": key });
    known.delete(key);
    cellsOf(item).forEach((cell, column) => fillCell(row, column, labels[column], cell));
    if (body.children[place] !== row) body.insertBefore(row, body.children[place] || null);
  });
  for (const row of known.values()) row.remove();
}

function fillCell(row, column, label, cell) {
  let td = row.children[column];
  if (!td) {
    td = element("td", { role: "cell", "data-label": label, class: cell.number && "number" });
    row.append(td);
  }
  const made = element("span", { class: "cell" }, ...cell.inside);
  // What is the same stays, so that it keeps the focus.
  if (!td.firstChild || !td.firstChild.isEqualNode(made)) td.replaceChildren(made);
}

const cell = (...inside) => ({ inside: inside.map((each) => each ?? "") });
const figure = (...inside) => ({ number: true, inside: inside.map((each) => each ?? "") });
const sub = (text) => (text ? element("span", { class: "sub" }, text) : null);

// -- parts of the page ----------------------------------------------------------------------------

function showFacts(list, facts) {
  const made = facts.map(([word, value]) =>
    element("div", {}, element("dt", {}, word), element("dd", {}, value)));
  list.replaceChildren(...made);
}

function show() {
  $("project").textContent = news.project;
  document.title = `${badViews().length || badSources().length ? "⚠ " : ""}${news.project} – Viewkeeper`;
  const totals = news.totals;
  showFacts($("totals"), [
    ["running for", news.at ? span(Math.max(0, news.at - news.since)) : "–"],
    ["changes/s", rate(totals.change_rate)],
    ["changes", number(totals.changes)],
    ["batches", `${number(totals.batches - totals.on_spark)} inline, ${number(totals.on_spark)} on Spark`],
    ["rows written", number(totals.rows)],
    ["lookups", number(totals.lookups)],
    ["troubles", number(totals.errors)],
  ]);
  showAttention();
  showViews();
  showSources();
  showBatches();
  showProposals();
  showEvents();
  showGraph();
  if (shownView) showViewFacts();
}

const badViews = () => news.views.filter((view) => view.problem && view.state !== "refreshing");
const badSources = () => news.sources.filter((source) => source.state === "away" || source.warnings.length);

function showAttention() {
  const items = [
    ...(news.trouble ? [["bad", news.trouble, null]] : []),
    ...badSources().map((source) => ["bad", source.problem || `source "${source.name}": ${source.warnings.join("; ")}`, source.hint]),
    ...badViews().map((view) => [view.up ? "warn" : "bad", `view "${view.name}": ${view.problem}`, view.hint]),
  ];
  const shown = items.slice(0, 20).map(([tone, text, hint]) =>
    element("li", {}, element("span", { class: tone }, text), hint ? sub(hint) : null));
  if (items.length > 20) shown.push(element("li", {}, `and ${items.length - 20} more`));
  $("attention").hidden = items.length === 0;
  const list = element("ul", { id: "attention-list" }, ...shown);
  // It is read out when it changes, so only then it is touched.
  if (!list.isEqualNode($("attention-list"))) $("attention-list").replaceChildren(...list.childNodes);
}

function showViews() {
  const wanted = $("filter").value.toLowerCase();
  const onlyBad = $("only-bad").checked;
  const views = news.views.filter((view) => view.name.toLowerCase().includes(wanted)
    && (!onlyBad || !["fresh", "behind"].includes(view.state)));
  $("views-count").textContent = views.length === news.views.length
    ? `(${views.length})` : `(${views.length} of ${news.views.length})`;
  fillTable($("view-rows"), views, (view) => view.name, (view) => [
    cell(element("button", { class: "link", type: "button", "data-view": view.name }, view.name)),
    cell(stateText(view.state), sub(view.loading || (view.awaited.length ? `${view.awaited.join(", ")} away` : null)), sub(view.apart && "advances apart")),
    figure(view.lag_seconds ? span(view.lag_seconds) : view.lag_seconds === null ? "?" : "–"),
    figure(view.freshness.length ? `${span(view.freshness[0])} / ${span(view.freshness[1])}` : "–"),
    figure(number(view.rows)),
    figure(rate(view.row_rate)),
    figure(`${number(view.inline)} inline`, sub(`${number(view.on_spark)} on Spark`)),
    figure(number(view.lookups)),
    figure(size(view.bytes)),
    cell(view.level, sub(view.algorithm)),
  ]);
}

function showSources() {
  fillTable($("source-rows"), news.sources, (source) => source.name, (source) => [
    cell(source.name),
    cell(source.kind),
    cell(stateText(source.state), sub(source.warnings.join("; "))),
    figure(source.place ?? "–"),
    figure(source.lag_changes ? counted(source.lag_changes, "change") : source.lag_changes === null ? "?" : "–",
      source.lag_changes ? sub(span(source.lag_seconds)) : null),
    figure(rate(source.change_rate)),
    figure(number(source.lookups)),
    figure(source.unit === "bytes" ? size(source.log_kept) : `${number(source.log_kept)} ${source.log_kept === 1 ? source.unit.slice(0, -1) : source.unit}`),
  ]);
}

function showBatches() {
  $("no-batches").hidden = news.batches.length > 0;
  fillTable($("batch-rows"), news.batches, (batch) => `${batch.number} ${batch.at}`, (batch) => [
    cell(`${number(batch.number)}`, element("span", { class: "sub" }, moment(batch.at), `, ts ${number(batch.ts)}`)),
    cell(batch.views.join(", ") + (batch.view_count > batch.views.length ? ` and ${batch.view_count - batch.views.length} more` : "")),
    figure(`${number(batch.changes)} → ${number(batch.rows)}`),
    figure(number(batch.lookups)),
    figure(span(batch.freshness)),
    cell(timeBar(batch), sub(`${span(batch.seconds)} ${batch.where === "spark" ? "on Spark" : "inline"}: ${phaseText(batch)}`)),
  ]);
}

const PHASES = ["read", "sweep", "commit"];
const phaseText = (batch) =>
  PHASES.filter((phase) => phase in batch.phases).map((phase) => `${phase} ${span(batch.phases[phase])}`).join(", ");

function timeBar(batch) {
  const bar = element("span", { class: "bar", "aria-hidden": "true" });
  let rest = batch.seconds;
  for (const phase of PHASES) {
    const seconds = batch.phases[phase] || 0;
    rest -= seconds;
    const part = element("span", { class: phase });
    part.style.width = `${(100 * seconds) / Math.max(batch.seconds, 1e-9)}%`;
    bar.append(part);
  }
  const part = element("span", { class: "rest" });
  part.style.width = `${(100 * Math.max(rest, 0)) / Math.max(batch.seconds, 1e-9)}%`;
  bar.append(part);
  return bar;
}

const ROWS = {
  nothing: "the stored rows stay as they are", restate: "the stored rows stay, under other columns",
  difference: "recomputed, and repaired by the difference", reload: "recomputed, into a new table",
};

function showProposals() {
  $("no-proposals").hidden = news.proposals.length > 0;
  const cards = news.proposals.map((each) => element("article", { class: "card" },
    element("h3", {}, `View ${each.view}`),
    element("p", {}, each.causes.join("; ")),
    element("pre", { tabindex: "0" }, each.lines.join("\n")),
    element("p", { class: "note" }, `Rows: ${ROWS[each.rows] || each.rows}; extent ${each.extent}. Proposed ${day(each.at)}. `
      + `“viewkeeper changes ${each.view}” computes which rows would come and go.`),
    element("p", { class: "tools" },
      element("button", { type: "button", "data-decide": "approve", "data-id": each.id, "data-of": each.view }, `Approve for ${each.view}`),
      element("button", { type: "button", "data-decide": "reject", "data-id": each.id, "data-of": each.view }, "Reject: stop the view"))));
  const list = element("div", { id: "proposal-list" }, ...cards);
  if (!list.isEqualNode($("proposal-list"))) $("proposal-list").replaceWith(list);
}

function showEvents() {
  $("no-events").hidden = news.events.length > 0;
  const list = element("ol", { id: "event-list", tabindex: "0", "aria-label": "Events, newest first" },
    ...news.events.map((each) => element("li", {},
      moment(each.at), " ",
      element("span", { class: each.is_bad ? "bad" : "" }, each.text), each.hint ? sub(each.hint) : null)));
  if (!list.isEqualNode($("event-list"))) $("event-list").replaceWith(list);
}

// -- the graph --------------------------------------------------------------------------------------

const WIDTH = 178, HEIGHT = 40, GAP_X = 46, GAP_Y = 10, GAP_BESIDE = 12;
let graphText = "";

function graphNodes() {
  const nodes = new Map();
  const edges = [];
  for (const source of news.sources) {
    nodes.set(`s ${source.name}`, { name: source.name, kind: "source", tone: STATES[source.state][0],
      line: source.state === "away" ? "✕ away" : source.lag_changes ? `${number(source.lag_changes)} waiting, ${rate(source.change_rate)}/s` : `${rate(source.change_rate)} changes/s` });
  }
  for (const view of news.views) {
    const id = `v ${view.name}`;
    const state = STATES[view.state] || ["", "", ""];
    const lag = view.lag_seconds ? `${span(view.lag_seconds)} behind` : view.freshness.length ? `fresh in ${span(view.freshness[0])}` : state[2];
    nodes.set(id, { name: view.name, kind: "view", tone: state[0],
      line: ["fresh", "behind"].includes(view.state) ? `${lag}, ${rate(view.row_rate)} rows/s` : `${state[1]} ${state[2]}` });
    const inner = view.stages.slice(0, -1);
    const stageId = (table) => { const found = /#(\d+)$/.exec(table); return found ? `n ${view.name} ${found[1]}` : null; };
    for (const stage of inner) {
      nodes.set(`n ${view.name} ${stage.number}`, { name: stage.kind.toLowerCase(), kind: "stage", tone: "", line: `stage ${stage.number} of ${view.name}` });
    }
    for (const stage of view.stages) {
      const to = stage === view.stages[view.stages.length - 1] ? id : `n ${view.name} ${stage.number}`;
      for (const input of stage.inputs) {
        const from = input.source ? `s ${input.source}` : stageId(input.table) || `v ${input.table}`;
        edges.push([from, to]);
      }
    }
    if (!view.stages.length) {
      for (const source of view.reads) edges.push([`s ${source}`, id]);
      for (const parent of view.parents) edges.push([`v ${parent}`, id]);
    }
  }
  const unique = new Map(edges.filter(([from, to]) => nodes.has(from) && nodes.has(to)).map((edge) => [edge.join("\n"), edge]));
  return [nodes, [...unique.values()]];
}

function placeNodes(nodes, edges) {
  const inputs = new Map([...nodes.keys()].map((id) => [id, []]));
  for (const [from, to] of edges) inputs.get(to).push(from);
  const depth = new Map();
  const depthOf = (id, seen) => {
    if (depth.has(id)) return depth.get(id);
    if (seen.has(id)) return 0;
    const under = new Set(seen).add(id);
    const found = nodes.get(id).kind === "source" ? 0 : 1 + Math.max(0, ...inputs.get(id).map((each) => depthOf(each, under)));
    depth.set(id, found);
    return found;
  };
  const layers = [];
  for (const id of nodes.keys()) (layers[depthOf(id, new Set())] ||= []).push(id);
  let left = 10, most = 1;
  layers.forEach((layer, column) => {
    const center = (id) => {
      const places = inputs.get(id).map((each) => nodes.get(each).y ?? 0);
      return places.length ? places.reduce((sum, each) => sum + each, 0) / places.length : 0;
    };
    if (column) layer.sort((one, other) => center(one) - center(other));
    // A layer of very many stands in several columns.
    const beside = Math.min(5, Math.ceil(layer.length / 12));
    const rows = Math.ceil(layer.length / beside);
    layer.forEach((id, place) => {
      nodes.get(id).x = left + Math.floor(place / rows) * (WIDTH + GAP_BESIDE);
      nodes.get(id).y = 10 + (place % rows) * (HEIGHT + GAP_Y);
    });
    left += beside * (WIDTH + GAP_BESIDE) - GAP_BESIDE + GAP_X;
    most = Math.max(most, rows);
  });
  return [left - GAP_X + 10, most * (HEIGHT + GAP_Y) + 14];
}

const clip = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

function showGraph() {
  const [nodes, edges] = graphNodes();
  const text = JSON.stringify([[...nodes], edges]);
  if (text === graphText) return;
  graphText = text;
  const [width, height] = placeNodes(nodes, edges);
  const picture = drawn("svg", { class: edges.length > 60 ? "crowded" : "", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Graph of sources, stages and views" });
  for (const [from, to] of edges) {
    const one = nodes.get(from), other = nodes.get(to);
    const x1 = one.x + WIDTH, y1 = one.y + HEIGHT / 2, x2 = other.x, y2 = other.y + HEIGHT / 2, half = Math.max(20, (x2 - x1) / 2);
    picture.append(drawn("path", { class: "edge", d: `M${x1},${y1} C${x1 + half},${y1} ${x2 - half},${y2} ${x2},${y2}` }));
  }
  for (const node of nodes.values()) {
    const box = drawn("g", {},
      drawn("title", {}, `${node.kind} ${node.name}: ${node.line}`),
      drawn("rect", { class: `box ${node.tone}`, x: node.x, y: node.y, width: WIDTH, height: HEIGHT, rx: node.kind === "source" ? 14 : 4 }),
      drawn("text", { x: node.x + 9, y: node.y + 17 }, clip(node.name, 24)),
      drawn("text", { class: "soft", x: node.x + 9, y: node.y + 32 }, clip(node.line, 28)));
    picture.append(node.kind === "view" ? drawn("a", { href: `#view/${encodeURIComponent(node.name)}`, "aria-label": `view ${node.name}, ${node.line}` }, box) : box);
  }
  const focused = document.activeElement?.closest?.("#graph-box a")?.getAttribute("href");
  $("graph-box").replaceChildren(picture);
  if (focused) [...$("graph-box").querySelectorAll("a")].find((each) => each.getAttribute("href") === focused)?.focus();
}

// -- one view ---------------------------------------------------------------------------------------

async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, options);
  const found = await response.json();
  if (!response.ok) throw new Error([found.error, found.detail, found.hint && `hint: ${found.hint}`].filter(Boolean).join("\n"));
  return found;
}

function openView(name) {
  shownView = name;
  $("view-title").textContent = name;
  for (const id of ["view-chart", "view-stages", "view-history", "view-columns"]) $(id).replaceChildren();
  $("view-sql").textContent = "";
  if (!$("view-dialog").open) $("view-dialog").showModal();
  if (news) showViewFacts();
}

function showViewFacts() {
  const view = news.views.find((each) => each.name === shownView);
  if (!view) return;
  $("view-problem").hidden = !view.problem;
  $("view-problem").textContent = view.problem || "";
  $("view-problem").className = view.up ? "warn" : "bad";
  $("view-hint").hidden = !view.hint;
  $("view-hint").textContent = view.hint ? `Way out: ${view.hint}` : "";
  showFacts($("view-facts"), [
    ["state", stateText(view.state)],
    ["rows", number(view.rows)], ["ts", number(view.ts)],
    ["oldest waiting", view.lag_seconds ? span(view.lag_seconds) : "–"],
    ["freshness p50, p95, p99", view.freshness.map(span).join(", ") || "–"],
    ["batches", `${number(view.inline)} inline, ${number(view.on_spark)} on Spark`],
    ["lookups", number(view.lookups)],
    ["rows asked of sources by the last batch", number(view.asked_rows)],
    ["stored", `${size(view.bytes)} in ${number(view.files)} files`],
    ["consistency", view.level], ["algorithm", view.algorithm],
    ...(view.apart ? [["advances apart from the others", `because ${view.apart}`]] : []),
    ["last commit", view.committed_at ? day(view.committed_at) : "–"],
    ["reads", [...view.reads, ...view.parents].join(", ") || "–"],
  ]);
  ask(`api/views/${encodeURIComponent(shownView)}`).then(showViewPage, (error) => { $("view-sql").textContent = error.message; });
}

function showViewPage(found) {
  if (found.name !== shownView) return;
  if ($("view-sql").textContent !== found.sql) $("view-sql").textContent = found.sql;
  $("view-chart").replaceChildren(freshnessChart(found.fresh));
  const stages = found.stages.map((stage) => element("li", {},
    `${stage.kind.toLowerCase()} ${stage.number} of ${stage.inputs.map((input) => (input.source ? `${input.source}.` : "") + input.table).join(", ") || "nothing"}`));
  $("view-stages").replaceChildren(...(stages.length ? stages : [element("li", {}, "one sweep over all its tables; nothing is stored besides the view")]));
  const versions = found.versions.map((each) => element("li", {},
    `version ${each.number}, from ts ${number(each.ts)} on, ${day(each.at)}`,
    each.causes.length ? sub(each.causes.join("; ")) : null,
    each.number > 1 ? element("pre", { tabindex: "0" }, each.lines.join("\n") || "(the same SQL)") : null));
  $("view-history").replaceChildren(...versions);
  $("view-columns").replaceChildren(...found.columns.map((each) => element("li", {}, `${each.name} ${each.type}`)));
}

function freshnessChart(points) {
  if (!points.length) return element("p", { class: "note" }, "No batch in this time.");
  const now = Date.now() / 1000, from = now - 900, width = 640, height = 130, left = 62, bottom = 18;
  const shown = points.filter(([at]) => at >= from);
  const most = Math.max(0.001, ...shown.map((each) => each[1]));
  const x = (at) => left + ((at - from) / 900) * (width - left - 6);
  const y = (seconds) => height - bottom - (seconds / most) * (height - bottom - 12);
  const words = shown.length ? `between ${span(Math.min(...shown.map((each) => each[1])))} and ${span(most)}` : "no batch";
  const picture = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Freshness: ${words}` },
    drawn("line", { class: "axis", x1: left, x2: width - 6, y1: y(0), y2: y(0) }),
    drawn("line", { class: "axis", x1: left, x2: width - 6, y1: y(most), y2: y(most) }),
    drawn("text", { class: "soft", x: left - 6, y: y(most) + 4, "text-anchor": "end" }, span(most)),
    drawn("text", { class: "soft", x: left - 6, y: y(0) + 4, "text-anchor": "end" }, "0"),
    drawn("text", { class: "soft", x: left, y: height - 3 }, "15 min ago"),
    drawn("text", { class: "soft", x: width - 6, y: height - 3, "text-anchor": "end" }, "now"),
    drawn("polyline", { class: "curve", points: shown.map(([at, seconds]) => `${x(at).toFixed(1)},${y(seconds).toFixed(1)}`).join(" ") }),
    ...shown.map(([at, seconds]) => drawn("circle", { class: "dot", cx: x(at), cy: y(seconds), r: 2 })));
  return picture;
}

// -- what people do ---------------------------------------------------------------------------------

function followHash() {
  const found = /^#view\/(.+)$/.exec(location.hash);
  if (found) openView(decodeURIComponent(found[1]));
}

async function decide(button) {
  const { decide: decision, id, of: view } = button.dataset;
  button.disabled = true;
  try {
    await ask(`api/proposals/${encodeURIComponent(view)}`, { decision, id });
    $("proposal-answer").textContent = decision === "approve" ? `${view}: approved; the maintainer takes it from here` : `${view}: rejected; it stops where it is`;
  } catch (error) {
    $("proposal-answer").textContent = error.message;
    button.disabled = false;
  }
}

async function runSql() {
  const text = $("sql-text").value, ts = $("sql-ts").value.trim();
  const button = $("sql-form").querySelector("button");
  button.disabled = true;
  $("sql-answer").textContent = "running …";
  $("sql-rows").replaceChildren();
  try {
    const found = await ask("api/query", { sql: text, as_of: ts === "" ? null : Number(ts) });
    $("sql-answer").textContent = `${found.has_more ? "the first " : ""}${counted(found.rows.length, "row")} in ${span(found.seconds)}, ${found.where === "spark" ? "by Spark" : "without Spark"}`;
    $("sql-rows").replaceChildren(element("table", {},
      element("thead", {}, element("tr", {}, ...found.columns.map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, ...found.rows.map((row) => element("tr", {}, ...row.map(valueCell))))));
  } catch (error) {
    $("sql-answer").textContent = error.message;
  } finally {
    button.disabled = false;
  }
}

function valueCell(value) {
  if (value === null) return element("td", { class: "null" }, "NULL");
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  return element("td", { class: typeof value === "number" ? "number" : null }, text);
}

// -- the connection ---------------------------------------------------------------------------------

const SILENT_SECONDS = 20;

function sayConnection(text, tone) {
  // It is read out when it changes, so only then it is touched.
  if ($("connection").textContent !== text) $("connection").textContent = text;
  $("connection").className = tone;
}

function listen() {
  const stream = new EventSource("api/events");
  stream.onmessage = (event) => {
    news = JSON.parse(event.data);
    heardAt = performance.now();
    sayConnection("live", "good");
    document.body.dataset.number = news.number;
    show();
  };
  stream.onerror = () => {
    sayConnection(news?.at ? `not connected; this is of ${clock(news.at)} UTC, trying again` : "not connected; trying again", "bad");
    if (stream.readyState === EventSource.CLOSED) askAgain();
  };
}

// A stream that was refused does not come back by itself: another process may want the token again.
async function askAgain() {
  try {
    const response = await fetch("api/status");
    if (response.status === 401) { location.assign("login"); return; }
  } catch (error) {
    console.info(`not connected: ${error.message}`);
  }
  setTimeout(listen, 3000);
}

// A source that hangs, or a machine that slept: nothing is wrong with the connection, yet nothing comes.
setInterval(() => {
  if (news && $("connection").className === "good" && performance.now() - heardAt > SILENT_SECONDS * 1000) {
    sayConnection(`no news since ${clock(news.at)} UTC`, "warn");
  }
}, 1000);

document.addEventListener("click", (event) => {
  const view = event.target.closest("[data-view]");
  if (view) openView(view.dataset.view);
  const button = event.target.closest("[data-decide]");
  if (button) decide(button);
});
$("sql-text").addEventListener("focus", () => {
  const view = news?.views[0];
  if (view) $("sql-text").placeholder = `SELECT * FROM ${view.name} LIMIT 10`;
});
$("view-dialog").addEventListener("close", () => {
  shownView = null;
  if (location.hash.startsWith("#view/")) history.replaceState(null, "", location.pathname);
});
$("filter").addEventListener("input", () => news && showViews());
$("only-bad").addEventListener("change", () => news && showViews());
$("sql-form").addEventListener("submit", (event) => { event.preventDefault(); runSql(); });
$("sql-text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); runSql(); }
});
window.addEventListener("hashchange", followHash);
listen();
followHash();
