/** Ten thousand connections on which nothing happens: what they cost, and who notices. */
import { mkdtempSync, readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { HaloServer, newInstallation } from './fixtures/halo-server.js';

// A real server, and many connections.
t.setTimeout(120_000);

const CONNECTIONS = 10_000;
/** Files that this process and the server need beside the connections. */
const FILES_KEPT = 500;
/** Measured at 4 KB: what a connection may cost before ten thousand of them are worth a look. */
const BYTES_OF_EACH_MAX = 10_000;
/** The kernel queues so many that are not accepted yet. */
const AT_ONCE = 200;
const SERVED_WITHIN_MS = 1_000;

/** How many this machine lets a process have. */
function connectionsOf(limits: string): number {
  const allowed = Number(/Max open files\s+(\d+)/.exec(limits)?.[1] ?? 1024);
  return Math.min(CONNECTIONS, allowed - FILES_KEPT);
}

function residentBytes(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) * 1024;
}

async function open(port: number, count: number, onClose: () => void): Promise<Socket[]> {
  const sockets: Socket[] = [];
  while (sockets.length < count) {
    const some = Array.from({ length: Math.min(AT_ONCE, count - sockets.length) }, () => {
      const socket = connect(port, '127.0.0.1');
      socket.on('error', () => undefined);
      socket.on('close', onClose);
      return socket;
    });
    await Promise.all(some.map((socket) => new Promise((done) => socket.once('connect', done))));
    sockets.push(...some);
  }
  return sockets;
}

t.test('ten thousand idle connections cost little, and service goes on', async (t) => {
  const data = mkdtempSync(join(tmpdir(), 'halo-data-'));
  const server = await HaloServer.start(
    newInstallation(),
    ['--data-dir', data],
    ['--front-threads', '1'],
  );
  t.teardown(() => server.stop('SIGKILL'));
  const { credential } = await server.enrol();
  for (let count = 0; count < 200; count += 1) await server.authenticate(credential);
  const count = connectionsOf(readFileSync('/proc/self/limits', 'utf8'));
  if (count < CONNECTIONS) t.comment(`this machine allows ${count}, not ${CONNECTIONS}`);
  const before = residentBytes(server.pid);
  let closed = 0;
  const sockets = await open(Number(new URL(server.url).port), count, () => {
    closed += 1;
  });
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
  });
  const each = (residentBytes(server.pid) - before) / count;
  t.ok(each < BYTES_OF_EACH_MAX, `${Math.round(each)} bytes each`);
  t.ok(closed < count, `${closed} were closed already`);
  let slowestMs = 0;
  for (let asked = 0; asked < 200; asked += 1) {
    const startMs = performance.now();
    t.equal(await server.authenticate(credential), 'in');
    slowestMs = Math.max(slowestMs, performance.now() - startMs);
  }
  t.ok(slowestMs < SERVED_WITHIN_MS, `the slowest of 200 in ${slowestMs.toFixed()} ms`);
});
