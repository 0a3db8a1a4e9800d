"""The style sheet of the HTML report: nothing from elsewhere; light, dark and print."""

CSS = """
:root { color-scheme: light dark; --bg:#fbfbfa; --card:#ffffff; --ink:#1c2024; --soft:#5d6670;
  --line:#e1e3e6; --faint:#f3f4f5; --pass:#1d7a4a; --pass-bg:#e8f4ed; --fail:#b3261e;
  --fail-bg:#fbeae8;
  --ours:#2458b0; --ref:#c05f14; }
@media (prefers-color-scheme: dark) { :root { --bg:#14171a; --card:#1b1f23; --ink:#e4e7ea;
  --soft:#9aa4ae; --line:#31373d; --faint:#22272c; --pass:#5cc48d; --pass-bg:#17301f;
  --fail:#f28b82; --fail-bg:#3a1d1b; --ours:#7fabf5; --ref:#eba067; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin:0; background:var(--bg); color:var(--ink);
  font:15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial,
  sans-serif; }
main { max-width:1080px; margin:0 auto; padding:36px 24px 72px; }
h1 { font-size:15px; font-weight:600; color:var(--soft); margin:0 0 14px; }
h2 { font-size:19px; font-weight:600; letter-spacing:-.01em; margin:44px 0 12px; }
h3 { font-size:15px; font-weight:600; margin:28px 0 8px; }
h4 { font-size:13px; font-weight:600; margin:20px 0 6px; color:var(--soft); }
p { margin:0 0 10px; max-width:72ch; }
a { color:inherit; text-underline-offset:2px; text-decoration-color:var(--soft); }
code, .mono { font:12.5px/1.5 ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas,
  "DejaVu Sans Mono", monospace; overflow-wrap:anywhere; }
.soft { color:var(--soft); }
.banner { border:1px solid var(--line); border-left:6px solid var(--tone); background:var(--card);
  border-radius:6px; padding:20px 24px; }
.banner strong { display:block; font-size:28px; line-height:1.2; letter-spacing:-.02em;
  color:var(--tone); }
.banner p { margin:6px 0 0; }
.banner ul { margin:12px 0 0; padding-left:18px; }
.banner li { margin:3px 0; }
.pass { --tone:var(--pass); --tone-bg:var(--pass-bg); }
.fail { --tone:var(--fail); --tone-bg:var(--fail-bg); }
.facts { display:grid; grid-template-columns:repeat(4, 1fr); gap:1px; background:var(--line);
  border:1px solid var(--line); border-radius:6px; overflow:hidden; margin:14px 0 0; }
.facts div { background:var(--card); padding:12px 16px; }
.facts b { display:block; font-size:20px; font-weight:600; letter-spacing:-.01em;
  font-variant-numeric:tabular-nums; }
.facts span { color:var(--soft); font-size:13px; }
.scroll { overflow-x:auto; border:1px solid var(--line); border-radius:6px;
  background:var(--card); }
table { border-collapse:separate; border-spacing:0; width:100%; font-size:13.5px;
  font-variant-numeric:tabular-nums; }
th { text-align:left; font-weight:600; color:var(--soft); font-size:12.5px; white-space:nowrap; }
th, td { padding:7px 12px; border-bottom:1px solid var(--line); vertical-align:top; }
tr:last-child > td, tr:last-child > th { border-bottom:0; }
tbody th { color:var(--ink); font-weight:500; white-space:normal; min-width:110px; }
figcaption span { white-space:nowrap; }
td.n, th.n { text-align:right; white-space:nowrap; }
.matrix th, .matrix td { text-align:center; }
.matrix th:first-child { text-align:left; position:sticky; left:0; background:var(--card); }
.chip { display:inline-block; padding:1px 7px; margin:1px; border-radius:4px; font-size:12px;
  color:var(--tone); background:var(--tone-bg); text-decoration:none; white-space:nowrap; }
details { border:1px solid var(--line); border-radius:6px; background:var(--card); margin:8px 0; }
summary { cursor:pointer; padding:10px 16px; display:grid; gap:4px 14px; align-items:baseline;
  grid-template-columns:44px 116px 64px 1fr 140px 54px;
  font-variant-numeric:tabular-nums; list-style:none; }
summary::-webkit-details-marker { display:none; }
summary:hover { background:var(--faint); }
summary .state { color:var(--tone); font-weight:600; font-size:13px; }
summary .soft { font-size:13px; }
summary .last { text-align:right; }
details.plain summary { display:block; }
details.fail { border-color:var(--fail); }
.body { padding:4px 16px 18px; border-top:1px solid var(--line); }
.why { border-left:3px solid var(--tone); background:var(--tone-bg); border-radius:0 4px 4px 0;
  padding:8px 14px; margin:12px 0; }
.why p { margin:2px 0; max-width:none; overflow-wrap:anywhere; }
.plots { display:grid; grid-template-columns:repeat(auto-fit, minmax(min(100%, 420px), 1fr));
  gap:8px 28px; }
figure { margin:14px 0 4px; min-width:0; }
figcaption { font-size:13px; color:var(--soft); margin:0 0 4px; }
figcaption b { color:var(--ink); font-weight:600; }
svg { display:block; width:100%; height:auto; max-width:560px; }
svg text { font:11px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif;
  fill:var(--soft); font-variant-numeric:tabular-nums; }
svg .name { fill:var(--ink); }
svg .grid { stroke:var(--line); stroke-width:1; fill:none; }
svg .bound { stroke:var(--soft); stroke-width:1.5; fill:none; }
svg .dot { fill:var(--ours); }
svg .dots { stroke:var(--ours); stroke-width:5; stroke-linecap:round; }
svg .stem { stroke:var(--ours); stroke-width:1.5; opacity:.35; }
svg .peers { stroke:var(--ref); stroke-width:4; stroke-linecap:round; fill:none; }
svg .bad { fill:var(--fail); } svg path.bad { stroke:var(--fail); stroke-width:2; fill:none; }
svg .ours { stroke:var(--ours); stroke-width:2; fill:none; }
svg .ref { stroke:var(--ref); stroke-width:2; fill:none; stroke-dasharray:5 4; }
svg .delta { stroke:var(--ink); stroke-width:1.2; fill:none; }
.key { display:inline-block; width:9px; height:9px; border-radius:50%; background:var(--ours);
  margin:0 4px 0 10px; } .key.r { background:var(--ref); }
.key.b { width:2px; height:12px; border-radius:0; background:var(--soft); vertical-align:-2px; }
.key.x { background:var(--fail); } .key.l { height:2px; width:16px; border-radius:0;
  vertical-align:4px; } .key.d { height:0; width:16px; border-radius:0; background:none;
  border-top:2px dashed var(--ref); vertical-align:4px; }
.found { padding-left:22px; } .found li { margin:0 0 14px; } .found p { margin:3px 0 0; }
.found p, .found code { overflow-wrap:anywhere; }
.legend { font-size:12.5px; color:var(--soft); max-width:none; }
.legend span { white-space:nowrap; margin-right:10px; }
.tree { overflow-x:auto; font-size:13px; }
.tree details { border:0; border-radius:0; background:none; margin:0 0 0 18px; }
.tree > details { margin-left:0; }
.tree summary { display:block; padding:2px 0; white-space:nowrap; }
.tree summary::before { content:"▸"; color:var(--soft); display:inline-block; width:14px; }
.tree details[open] > summary::before { content:"▾"; }
.twig { margin-left:18px; padding:2px 0 2px 14px; white-space:nowrap; }
.leaf { display:inline-block; width:11px; height:11px; border-radius:2px; margin-right:4px;
  background:var(--leaf); vertical-align:-1px; }
.leaf.none { --leaf:var(--faint); } .leaf.l0 { --leaf:#d3e6da; } .leaf.l1 { --leaf:#a9d3b8; }
.leaf.l2 { --leaf:#6fb58a; } .leaf.l3 { --leaf:#e0b04a; } .leaf.bad { --leaf:var(--fail); }
@media (max-width:640px) { main { padding:20px 14px 48px; }
  .facts { grid-template-columns:1fr 1fr; }
  .banner { padding:16px; } .banner strong { font-size:24px; } h2 { margin-top:34px; }
  summary { grid-template-columns:44px 1fr auto; padding:10px 12px; }
  summary .worst { grid-column:2 / 4; } summary .ctl { grid-column:2; }
  svg text { font-size:13.5px; } .body { padding:2px 12px 14px; } th, td { padding:6px 9px; } }
@media print { details { break-inside:avoid; } body { background:#fff; } }
"""
