/**
 * The limit of a fan-out: uWebSockets.js alone, publishing one text to everyone who is connected.
 * `PUT` anything answers 200 with the version that was published.
 *
 *   node bare-publish.js --ready-file FILE
 */
import uWS from 'uWebSockets.js';
import { announceReady, baselineOptions } from './baseline-process.js';

/** As long as a delta with one kill. */
const PADDING = 'x'.repeat(150);

function serve(readyFile: string): void {
  let version = 0;
  const app = uWS.App();
  app.ws('/*', { idleTimeout: 120, open: (socket) => void socket.subscribe('all') });
  app.put('/*', (response) => {
    version += 1;
    const body = JSON.stringify({ version, epoch: '0' });
    app.publish('all', JSON.stringify({ type: 'delta', version, padding: PADDING }));
    response.end(body);
  });
  app.listen('127.0.0.1', 0, (socket) => {
    if (!socket) throw new Error('The baseline cannot listen on the loopback address.');
    process.once('SIGTERM', () => {
      app.close();
      process.exit(0);
    });
    announceReady(readyFile, `http://127.0.0.1:${uWS.us_socket_local_port(socket)}`);
  });
}

serve(baselineOptions([])['ready-file']);
