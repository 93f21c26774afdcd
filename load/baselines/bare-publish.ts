/**
 * The limit of a fan-out: uWebSockets.js alone, publishing one text to everyone who is connected.
 * `PUT` anything answers 200 with the version that was published.
 *
 *   node bare-publish.js --ready-file FILE
 */
import uWS from 'uWebSockets.js';
import { baselineOptions, listenUntilTold } from './baseline-process.js';

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
  listenUntilTold(app, readyFile);
}

serve(baselineOptions([])['ready-file']);
