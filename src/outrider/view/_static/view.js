// The one script of the viewer. Pages are made by the server; this loads what scrolls into view, shows what is
// new, and listens to keys. Nothing is ever made from text of a session here: only the server makes markup.
const $ = (query, within = document) => within.querySelector(query);
const all = (query, within = document) => [...within.querySelectorAll(query)];
const policy = window.trustedTypes?.createPolicy("rows", { createHTML: (made) => made }) ?? { createHTML: (made) => made };
const root = document.body.dataset.root;
const MOST_WINDOWS = 8;

function parsed(made) {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(made);
  return template.content;
}

async function load(address) {
  const answer = await fetch(address, { headers: { accept: "text/html" } });
  if (!answer.ok) throw new Error(String(answer.status));
  return parsed(await answer.text());
}

let toastTimer;
function toast(text, milliseconds = 1800) {
  const element = $("#toast");
  element.textContent = text;
  element.classList.add("on");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => element.classList.remove("on"), milliseconds);
}

async function copy(text, says) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without a clipboard of its own, as on a server that is reached by its address.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  toast(says);
}

// Times are the reader's.
const zone = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const dated = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "numeric", minute: "2-digit" });
function tellTimes(within = document) {
  const now = Date.now();
  for (const element of all("time[datetime]", within)) {
    const when = new Date(element.dateTime);
    element.title = zone.format(when);
    if ("short" in element.dataset) {
      const isDated = element.closest(".prompt") && when.toDateString() !== new Date().toDateString();
      element.textContent = (isDated ? dated : clock).format(when);
      continue;
    }
    const seconds = (now - when) / 1000;
    const [size, unit] = [[31536000, "year"], [2592000, "month"], [86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]]
      .find(([each]) => Math.abs(seconds) >= each) ?? [1, "second"];
    element.textContent = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" }).format(-Math.round(seconds / size), unit);
  }
}

// Light and dark.
const themes = ["", "light", "dark"];
function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name; else delete document.documentElement.dataset.theme;
  try { localStorage.setItem("outrider-theme", name); } catch { /* It is for this page only then. */ }
}
try { setTheme(localStorage.getItem("outrider-theme") ?? ""); } catch { /* as the system has it */ }
function nextTheme() {
  const name = themes[(themes.indexOf(document.documentElement.dataset.theme ?? "") + 1) % themes.length];
  setTheme(name);
  toast(name || "as the system has it");
}

// What is new. A stream that is refused is asked for again, later. Pages that nobody sees do not listen: a
// browser has six connections to a server, for all of its tabs.
function listen(address, handlers, began = () => {}) {
  let source, ended = false;
  const sign = (isOn) => { $(".live-sign").hidden = !isOn; };
  const close = () => { source?.close(); source = undefined; sign(false); };
  const open = () => {
    if (ended || document.hidden || source) return;
    source = new EventSource(address());
    source.onopen = () => { sign(true); began(); };
    source.onerror = () => {
      sign(false);
      if (source?.readyState === EventSource.CLOSED) { close(); setTimeout(open, 4000); }
    };
    for (const [name, handle] of Object.entries(handlers)) source.addEventListener(name, handle);
  };
  const look = () => { if (document.hidden) close(); else open(); };
  document.addEventListener("visibilitychange", look);
  open();
  return () => { ended = true; close(); document.removeEventListener("visibilitychange", look); };
}

// Pages that are renewed as a whole: the list, a batch, a pool, approvals.
const watch = document.body.dataset.watch;
if (watch) {
  const region = $("#live");
  const renew = async () => {
    const address = new URL(location.href);
    address.searchParams.set("part", "1");
    const made = await load(address).catch(() => null);
    // What somebody is writing, or has written, must not go away.
    const isWriting = region.contains(document.activeElement) && document.activeElement.matches("input,textarea,select");
    const hasWritten = all("input,textarea", region).some((each) => each.value !== each.defaultValue || each.checked !== each.defaultChecked);
    if (!made || isWriting || hasWritten) return;
    const open = new Map(all("[id] details, details[id]", region).map((each) => [each.closest("[id]").id, each.open]));
    const focused = document.activeElement?.getAttribute("href");
    tellTimes(made);
    region.replaceChildren(made);
    for (const each of all("[id] details, details[id]", region)) each.open = open.get(each.closest("[id]").id) ?? each.open;
    if (focused) $(`a[href="${CSS.escape(focused)}"]`, region)?.focus({ preventScroll: true });
  };
  // Also when it begins: something may have changed since the page was made, or while nobody listened.
  listen(() => watch + location.search, { changed: renew }, renew);
}

// A conversation.
const talk = $("#talk");
let stopFollowing;
if (talk) {
  const { base, query } = talk.dataset;
  const windows = () => all(":scope > .window", talk);
  const earlier = $("#earlier").parentElement, later = $("#later").parentElement;
  const busy = new Set();

  const edges = () => {
    earlier.hidden = "first" in windows()[0].dataset;
    const last = windows().at(-1);
    later.hidden = "last" in last.dataset;
    $("#end").hidden = !later.hidden;
  };
  const extend = async (which) => {
    if (busy.has(which)) return false;
    const edge = which === "before" ? windows()[0] : windows().at(-1);
    if ((which === "before" ? "first" : "last") in edge.dataset) return false;
    busy.add(which);
    try {
      const cursor = which === "before" ? edge.dataset.start : edge.dataset.end;
      const made = await load(`${base}/rows?${which}=${cursor}${query}`);
      const added = made.firstElementChild;
      fill(added);
      if (which === "before") {
        const height = document.documentElement.scrollHeight, place = scrollY;
        edge.before(added);
        scrollTo({ top: place + document.documentElement.scrollHeight - height, behavior: "instant" });
        while (windows().length > MOST_WINDOWS) windows().at(-1).remove();
        if (!("last" in windows().at(-1).dataset)) follow(false);
      } else {
        edge.after(added);
        while (windows().length > MOST_WINDOWS) {
          const gone = windows()[0], height = gone.offsetHeight;
          gone.remove();
          scrollBy({ top: -height, behavior: "instant" });
        }
      }
      edges();
      markFound();
      return true;
    } catch (error) { toast(`It could not be read: ${error.message}`); return false; } finally { busy.delete(which); }
  };
  $("#earlier").onclick = () => extend("before");
  $("#later").onclick = () => extend("after");
  const watchEdge = (edge, which) => {
    const observer = new IntersectionObserver((seen) => { if (seen.some((each) => each.isIntersecting)) extend(which).then(again); }, { rootMargin: "1200px" });
    // Looked at anew after each: what was added may be so short that it is still in view.
    const again = (added) => { if (added) { observer.unobserve(edge); observer.observe(edge); } };
    observer.observe(edge);
  };
  watchEdge(earlier, "before");
  watchEdge(later, "after");

  // Following: rows that are there already are exchanged, as a result came.
  const atEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - 160;
  const toEnd = (tries = 6) => {
    // Rows get their heights as they come into view, so it takes a few steps to get there.
    scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
    if (tries && !atEnd()) requestAnimationFrame(() => toEnd(tries - 1)); else if (tries) setTimeout(() => { if (!atEnd()) toEnd(0); }, 60);
  };
  const follow = (on) => {
    $("#follow").setAttribute("aria-pressed", String(on));
    stopFollowing?.();
    stopFollowing = undefined;
    if (!on) return;
    const last = windows().at(-1);
    if (!("last" in last.dataset)) { location.href = `${base}?${query.slice(1)}`; return; }
    stopFollowing = listen(() => `${base}/live?from=${windows().at(-1).dataset.end}${query}`, {
      rows: (event) => {
        const stick = atEnd(), into = windows().at(-1), made = parsed(event.data);
        fill(made);
        for (const row of [...made.children]) {
          const known = document.getElementById(row.id);
          // A result whose call is shown already is a part of that.
          if (known && !known.matches(".row")) continue;
          if (known) {
            const open = all("details", known).map((each) => each.open);
            all("details", row).forEach((each, place) => { if (open[place] !== undefined) each.open = open[place]; });
            if (known.outerHTML === row.outerHTML) continue;
            if (known.classList.contains("current")) row.classList.add("current");
            known.replaceWith(row);
          } else if (Number(row.dataset.at) >= Number(into.dataset.start)) { row.classList.add("fresh"); into.append(row); }
        }
        into.dataset.end = event.lastEventId;
        if (stick) toEnd();
        outlineSoon();
      },
      partial: (event) => {
        const stick = atEnd(), place = $("#partial");
        place.hidden = !event.data;
        place.textContent = event.data;
        if (stick) toEnd();
      },
      gone: () => { follow(false); $("#end").textContent = "This session has been deleted."; $("#end").hidden = false; },
      away: (event) => toast(event.data, 8000),
      reset: () => location.reload(),
    });
  };
  $("#follow").onclick = () => follow(!stopFollowing);

  // What takes a pass over all of it comes after the page.
  const stats = new Map();
  function fill(within) {
    tellTimes(within);
    for (const row of all(".row.prompt", within)) {
      const place = $(".stats", row), known = stats.get(row.dataset.at);
      if (place && known) place.textContent = known;
    }
  }
  const outline = async () => {
    const made = await load($("#outline").dataset.src).catch(() => null);
    for (const each of all(".loading")) each.classList.remove("loading");
    if (!made) return;
    for (const name of ["figures", "timeline", "outline"]) {
      if (name !== "timeline" || !$("#unzoom")) $(`#${name}`).replaceChildren(...$(`#new-${name}`, made).childNodes);
    }
    for (const link of all("[data-turn]")) stats.set(link.dataset.turn, $(".figures-of", link).textContent);
    fill(document);
    mark();
  };
  let outlineTimer;
  const outlineSoon = () => { outlineTimer ??= setTimeout(() => { outlineTimer = undefined; outline(); }, 2500); };
  const crumb = $(".crumb"), title = crumb.textContent;
  const mark = () => {
    const seen = rowsOf().filter((row) => { const { top, bottom } = row.getBoundingClientRect(); return bottom > 50 && top < innerHeight; });
    showPlace(Number(seen[0]?.dataset.at), Number(seen.at(-1)?.dataset.at));
    const from = Number(seen.find((row) => row.getBoundingClientRect().bottom > innerHeight / 3)?.dataset.at ?? 0);
    const links = all("[data-turn]"), here = links.findLast((link) => Number(link.dataset.turn) <= from);
    for (const link of links) {
      if (link === here && !link.classList.contains("here")) {
        // Only the outline scrolls, never the page.
        const aside = link.closest("aside"), { top, bottom } = link.getBoundingClientRect();
        if (top < 120 || bottom > innerHeight) aside.scrollTop += top - innerHeight / 2;
      }
      link.classList.toggle("here", link === here);
    }
    crumb.textContent = here ? $(".title", here).textContent : title;
    crumb.dataset.to = here?.dataset.turn ?? "";
  };
  crumb.onclick = () => { const row = document.getElementById(`e${crumb.dataset.to}`); if (row) goTo(row); else scrollTo({ top: 0 }); };

  // Where one is on the timeline, what is under the pointer, and a part of it, chosen by dragging.
  const shape = (name, within, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    within.append(made);
    return made;
  };
  const showPlace = (first, last) => {
    const plot = $(".timeline svg");
    if (!plot) return;
    $(".place", plot)?.remove();
    const bars = all("a[data-at]", plot).filter((each) => each.dataset.at >= first && each.dataset.at <= last).map((each) => $("rect", each));
    if (!bars.length) return;
    const left = Math.min(...bars.map((bar) => bar.x.baseVal.value)), right = Math.max(...bars.map((bar) => bar.x.baseVal.value + bar.width.baseVal.value));
    plot.prepend(shape("rect", plot, { class: "place", x: left - 2, y: 0, width: right - left + 4, height: plot.viewBox.baseVal.height - 20, rx: 3 }));
  };
  const zoom = async (first, last) => {
    const made = await load(`${base}/timeline?from=${Math.round(first * 100)}&to=${Math.round(last * 100)}${query}`).catch(() => null);
    if (made) { $("#timeline").replaceChildren(made); mark(); }
  };
  const tip = $("#tip");
  let from, chosen, hasDragged = false;
  const second = (event) => {
    const svg = $(".timeline"), plot = $("svg", svg), box = plot.viewBox.baseVal, { left, width } = svg.getBoundingClientRect();
    const scale = width / svg.viewBox.baseVal.width, x = (event.clientX - left) / scale;
    const part = Math.min(Math.max((x - box.x) / box.width, 0), 1), { first, last } = svg.dataset;
    return { x: box.x + part * box.width, at: Number(first) + part * (last - first) };
  };
  const strip = $("#timeline");
  strip.addEventListener("pointerdown", (event) => {
    hasDragged = false;
    if (event.button || event.pointerType === "touch" || !event.target.closest(".timeline")) return;
    event.preventDefault();
    from = second(event);
  });
  strip.addEventListener("pointermove", (event) => {
    const bar = event.target.closest("a[aria-label]");
    tip.hidden = !bar;
    if (bar) {
      tip.textContent = bar.getAttribute("aria-label");
      const { left, width, top } = bar.getBoundingClientRect();
      tip.style.left = `${Math.min(Math.max(left + width / 2, 90), innerWidth - 90)}px`;
      tip.style.top = `${top}px`;
    }
    if (!from) return;
    const to = second(event);
    if (Math.abs(to.x - from.x) < 6 && !chosen) return;
    chosen ??= shape("rect", $(".timeline svg"), { class: "chosen", y: 0, height: 400 });
    chosen.setAttribute("x", Math.min(from.x, to.x));
    chosen.setAttribute("width", Math.abs(to.x - from.x));
  });
  strip.addEventListener("pointerleave", () => { tip.hidden = true; });
  addEventListener("pointerup", (event) => {
    if (from && chosen) { hasDragged = true; const { at } = second(event); zoom(Math.min(from.at, at), Math.max(from.at, at)); }
    chosen?.remove();
    from = chosen = undefined;
  });
  strip.addEventListener("click", (event) => {
    if (hasDragged) { event.preventDefault(); event.stopPropagation(); }
    if (event.target.id === "unzoom") { event.target.remove(); outline(); }
  }, true);

  // Finding in the whole session, also in what is not on the page. What is on it is marked.
  const find = $("#find"), found = $("#found");
  let finding;
  const markFound = () => {
    if (!CSS.highlights) return;
    CSS.highlights.clear();
    const words = find.value.trim().toLowerCase();
    if (words.length < 2) return;
    const ranges = [], walk = document.createTreeWalker(talk, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node && ranges.length < 2000; node = walk.nextNode()) {
      const text = node.data.toLowerCase();
      for (let at = text.indexOf(words); at >= 0; at = text.indexOf(words, at + words.length)) ranges.push(new StaticRange({ startContainer: node, startOffset: at, endContainer: node, endOffset: at + words.length }));
    }
    CSS.highlights.set("found", new Highlight(...ranges));
  };
  find.oninput = () => {
    clearTimeout(finding);
    finding = setTimeout(async () => {
      const words = find.value.trim();
      const made = words && await load(`${base}/find?q=${encodeURIComponent(words)}`).catch(() => null);
      if (words !== find.value.trim()) return;
      found.hidden = !made;
      $("#outline").hidden = Boolean(made);
      found.replaceChildren(...(made ? made.childNodes : []));
      markFound();
    }, 180);
  };
  find.onkeydown = (event) => {
    if (event.key === "Escape" && find.value) { find.value = ""; find.oninput(); }
    if (event.key === "Enter" || event.key === "ArrowDown") { event.preventDefault(); $("a", found)?.focus(); if (event.key === "Enter") $("a", found)?.click(); }
  };
  // What was found stays found on the page that a hit leads to.
  try { find.value = sessionStorage.getItem("outrider-find") ?? ""; sessionStorage.removeItem("outrider-find"); if (find.value) find.oninput(); } catch { /* It is asked for again then. */ }
  found.addEventListener("click", (event) => { if (event.target.closest("a")) try { sessionStorage.setItem("outrider-find", find.value); } catch { /* as above */ } });
  let marking;
  addEventListener("scroll", () => { marking ??= setTimeout(() => { marking = undefined; mark(); }, 150); }, { passive: true });
  // A link to a row that is here goes there without loading.
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href*='#e']");
    const place = link && document.getElementById(link.getAttribute("href").split("#")[1]);
    if (!place || event.metaKey || event.ctrlKey) return;
    event.preventDefault();
    try { sessionStorage.removeItem("outrider-find"); } catch { /* nothing was kept */ }
    history.replaceState(null, "", link.getAttribute("href"));
    document.body.classList.remove("outline-on");
    goTo(place);
  });

  // Where one is, when the heading is out of sight.
  new IntersectionObserver(([seen]) => $(".crumb").classList.toggle("on", !seen.isIntersecting)).observe($("h1"));
  $("#side").onclick = toggleOutline;
  outline();
  if ("live" in talk.dataset) {
    follow(true);
    if (!location.hash && !/[?&](at|start)=/.test(location.search)) toEnd();
  }
  if (location.hash) requestAnimationFrame(() => { goTo(document.getElementById(location.hash.slice(1))); });
}

function toggleOutline() {
  document.body.classList.toggle(matchMedia("(max-width:60rem)").matches ? "outline-on" : "outline-off");
}

// Parts that are loaded when they are opened, and rows that are shown whole.
document.addEventListener("toggle", async (event) => {
  const place = event.target.open && $(":scope > [data-rows]", event.target);
  if (!place || place.dataset.loaded) return;
  place.dataset.loaded = "1";
  const made = await load(place.dataset.rows).catch(() => null);
  if (made) { tellTimes(made); place.replaceChildren(made); } else place.textContent = "It could not be read.";
}, true);
document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("button");
  if (!button) { if (!event.target.closest?.(".dropdown")) for (const each of all(".dropdown[open]")) each.open = false; return; }
  if (button.dataset.full) {
    const row = button.closest(".row"), made = await load(button.dataset.full).catch(() => null);
    if (!made) return toast("It could not be read.");
    const id = row.id, whole = made.firstElementChild;
    whole.id = id;
    for (const each of all("details", whole)) each.open = true;
    tellTimes(whole);
    row.replaceWith(whole);
  } else if (button.classList.contains("copy")) copyRow(button.closest(".row"));
  else if (button.dataset.copy) copy(button.dataset.copy, "Copied");
  else if (button.id === "theme") nextTheme();
  else if (button.id === "help-button") $("#help").showModal();
});

function copyRow(row) {
  if (row) copy($(".said", row).innerText.trim(), "Copied");
}

// Code can be copied by itself: as it is, and of a change what a patch has.
const codeCopy = $("#copy-code");
let codeOf;
function copyCode(pre) {
  const lines = all(".l", pre);
  const said = lines.length ? lines.map((line) => (pre.matches(".diff") ? line.dataset.s ?? "" : "") + line.textContent).join("") : pre.textContent;
  copy(said.replace(/\n$/, ""), "Code copied");
}
document.addEventListener("pointerover", (event) => {
  const pre = event.target.closest?.("pre");
  if (!pre && event.target === codeCopy) return;
  codeOf = pre;
  codeCopy.hidden = !pre;
  if (!pre) return;
  const { top, right } = pre.getBoundingClientRect();
  codeCopy.style.top = `${Math.max(top, 52) + 6}px`;
  codeCopy.style.left = `${right - 6}px`;
});
addEventListener("scroll", () => { codeCopy.hidden = true; }, { passive: true });
codeCopy.onclick = () => copyCode(codeOf);

// Keys.
function select(row) {
  for (const each of all(".row.current")) each.classList.remove("current");
  row.classList.add("current");
  row.focus({ preventScroll: true });
  row.scrollIntoView({ block: "nearest" });
}
function goTo(place) {
  if (!place) return;
  for (let each = place; each; each = each.parentElement?.closest("details")) if (each.matches("details")) each.open = true;
  select(place.closest(".row"));
  place.scrollIntoView({ block: "center" });
}
const rowsOf = () => all("#talk > .window > .row");
const current = () => $(".row.current") ?? rowsOf().find((row) => row.getBoundingClientRect().bottom > 80);
function step(by, wanted = () => true) {
  if (!talk) {
    const items = all("[data-nav]"), place = items.indexOf(document.activeElement);
    items[Math.min(Math.max(place + by, 0), items.length - 1)]?.focus();
    return;
  }
  const known = $(".row.current"), rows = rowsOf();
  let place = known ? rows.indexOf(known) + by : rows.indexOf(current());
  while (rows[place] && !wanted(rows[place])) place += by;
  if (rows[place]) select(rows[place]);
  else if (by < 0) $("#earlier").click(); else $("#later").click();
}
const keys = {
  j: () => step(1), k: () => step(-1),
  n: () => step(1, (row) => row.matches(".prompt")), p: () => step(-1, (row) => row.matches(".prompt")),
  x: () => step(1, (row) => row.matches(".failed") || $(".failed", row)), X: () => step(-1, (row) => row.matches(".failed") || $(".failed", row)),
  o: () => { const inside = all("details", current() ?? document.body).filter((each) => !each.parentElement.closest("details")); const open = inside.some((each) => !each.open); for (const each of inside) each.open = open; },
  e: () => { const inside = all("#talk details.call, #talk details.thought"); const open = inside.some((each) => !each.open && !each.matches(".agent-tree")); for (const each of inside) if (!each.matches(".agent-tree")) each.open = open; },
  g: () => { if (talk) location.href = `${talk.dataset.base}?start=1${talk.dataset.query}`; else scrollTo({ top: 0 }); },
  G: () => { if (talk && !$("#later").parentElement.hidden) location.href = `${talk.dataset.base}?${talk.dataset.query.slice(1)}`; else scrollTo({ top: document.documentElement.scrollHeight }); },
  f: () => $("#follow")?.click(), s: () => talk && toggleOutline(),
  c: () => (document.activeElement.matches("pre") ? copyCode(document.activeElement) : copyRow(current())),
  d: () => $(".tabs a:not([aria-current])")?.click(),
  y: () => { const at = current()?.dataset.at; copy(at ? `${location.origin}${talk.dataset.base}?at=${at}${talk.dataset.query}#e${at}` : location.href, "Link copied"); },
  r: () => $("#resume")?.click(),
  "/": () => {
    const field = $("#find") ?? $("#search");
    if (!field) { location.href = `${root}/?search`; return; }
    if (field.id === "find" && !field.checkVisibility()) toggleOutline();
    field.focus();
    field.select();
  },
  u: () => { location.href = `${root}/`; },
  t: nextTheme,
  "?": () => { const help = $("#help"); if (help.open) help.close(); else help.showModal(); },
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches?.("input,textarea,select")) { if (event.key === "Escape") event.target.blur(); return; }
  if (event.key === "Escape") { document.body.classList.remove("outline-on"); return; }
  const act = keys[event.key];
  if (act) { event.preventDefault(); act(); }
});
// Filters that are chosen, not written, count at once.
$(".filters")?.addEventListener("change", (event) => { if (event.target.matches("select,[type=checkbox]")) event.currentTarget.requestSubmit(); });
if (location.search === "?search") $("#search")?.focus();
tellTimes();
setInterval(tellTimes, 20000);
