/** How a baseline is started and says where it listens: the same for each of them. */

import uWS, { type TemplatedApp } from 'uWebSockets.js';
import { renameSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';

/** Reads `--ready-file` and the named options from the command line; all of them are needed. */
export function baselineOptions<Name extends string>(
  names: readonly Name[],
): Record<Name | 'ready-file', string> {
  const wanted: (Name | 'ready-file')[] = ['ready-file', ...names];
  const { values } = parseArgs({
    options: Object.fromEntries(wanted.map((name) => [name, { type: 'string' as const }])),
  });
  for (const name of wanted) {
    if (values[name] === undefined) throw new Error(`The option --${name} is missing.`);
  }
  return values as Record<Name | 'ready-file', string>;
}

/** Writes the ready file whole, as `halo-server --ready-file` does, and prints the address. */
export function announceReady(readyFile: string, url: string): void {
  writeFileSync(`${readyFile}.new`, `${JSON.stringify({ pid: process.pid, url })}\n`);
  renameSync(`${readyFile}.new`, readyFile);
  process.stdout.write(`${url}\n`);
}

/** Listens on a free port of the loopback address until SIGTERM, and says where. */
export function listenUntilTold(app: TemplatedApp, readyFile: string): void {
  app.listen('127.0.0.1', 0, (socket) => {
    if (!socket) throw new Error('The baseline cannot listen on the loopback address.');
    process.once('SIGTERM', () => {
      app.close();
      process.exit(0);
    });
    announceReady(readyFile, `http://127.0.0.1:${uWS.us_socket_local_port(socket)}`);
  });
}
