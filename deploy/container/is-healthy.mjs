/**
 * The container's health check: exits 0 if the process answers `/healthz`, 1 if not. It says
 * nothing of the store: a replica that cannot reach it is not ready (`/readyz`), and a restart
 * would not help.
 */
const listen = process.env.HALO_LISTEN ?? '127.0.0.1:8080';
const port = listen.slice(listen.lastIndexOf(':') + 1);
const host = listen.slice(0, -port.length - 1);
/** An address that stands for all of them cannot be called everywhere. */
const called = { '0.0.0.0': '127.0.0.1', '[::]': '[::1]' }[host] ?? host;

try {
  const answer = await fetch(`http://${called}:${port}/healthz`, {
    signal: AbortSignal.timeout(2_000),
  });
  process.exitCode = answer.status === 200 ? 0 : 1;
} catch {
  process.exitCode = 1;
}
