// One session of the official TypeScript SDK: connects as the plan on stdin says, does its steps, and prints
// an event a line as each thing happens. It judges nothing; the tests that start it do (node.py).
//
// Plan: { sdk: "sdk" | "client", era: "2025-11-25" | "2026-07-28", steps: [...],
//         stdio: { command, args, env, cwd } | http: { url, headers }, hosts: { name: address } }
// Steps: { do: "list" } | { do: "call", tool, arguments }

import dns from "node:dns";
import { text } from "node:stream/consumers";

const PROTOCOL_SECONDS = 60;

function say(event) {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

// Names that no DNS knows, as a tunnel's or a proxy's in a test.
function resolveHere(hosts) {
  const lookup = dns.lookup;
  dns.lookup = (name, options, done) =>
    typeof options === "function"
      ? lookup(hosts[name] ?? name, options)
      : lookup(hosts[name] ?? name, options, done);
}

// The 1.x line: one package, the 2025 protocol.
async function sdk(plan) {
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
  const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const client = new Client({ name: "typescript-sdk-1", version: "1.0.0" });
  return {
    client,
    transport: transportOf(plan, StdioClientTransport, StreamableHTTPClientTransport),
    call: (params, options) => client.callTool(params, undefined, options),
  };
}

// Its successor, which speaks both protocol eras.
async function successor(plan) {
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
  const mode = plan.era === "2026-07-28" ? { pin: plan.era } : "legacy";
  const client = new Client({ name: "typescript-sdk-2", version: "2.0.0" }, { versionNegotiation: { mode } });
  return {
    client,
    transport: transportOf(plan, StdioClientTransport, StreamableHTTPClientTransport),
    call: (params, options) => client.callTool(params, options),
  };
}

function transportOf(plan, Stdio, Http) {
  if (plan.stdio) {
    return new Stdio({ ...plan.stdio, stderr: "inherit" });
  }
  return new Http(new URL(plan.http.url), { requestInit: { headers: plan.http.headers } });
}

async function run(step, number, { client, call }) {
  if (step.do === "list") {
    const { tools } = await client.listTools();
    say({ event: "tools", step: number, tools });
    return;
  }
  const options = {
    timeout: PROTOCOL_SECONDS * 1000,
    onprogress: (progress) => say({ event: "progress", step: number, ...progress }),
  };
  const result = await call({ name: step.tool, arguments: step.arguments ?? {} }, options);
  say({ event: "result", step: number, result });
}

function raised(error, step) {
  say({ event: "raised", step, name: error.name, code: error.code ?? null, status: error.status ?? null, message: error.message });
}

const plan = JSON.parse(await text(process.stdin));
resolveHere(plan.hosts ?? {});
const session = await (plan.sdk === "sdk" ? sdk(plan) : successor(plan));
let negotiated = null;
const noted = session.transport.setProtocolVersion?.bind(session.transport);
session.transport.setProtocolVersion = (version) => {
  negotiated = version;
  noted?.(version);
};
try {
  await session.client.connect(session.transport, { timeout: PROTOCOL_SECONDS * 1000 });
} catch (error) {
  raised(error, null);
  process.exit(0);
}
say({
  event: "connected",
  server: session.client.getServerVersion(),
  instructions: session.client.getInstructions() ?? "",
  revision: session.client.getNegotiatedProtocolVersion?.() ?? negotiated,
});
for (const [number, step] of plan.steps.entries()) {
  try {
    await run(step, number, session);
  } catch (error) {
    raised(error, number);
  }
}
await session.client.close();
say({ event: "closed" });
