/**
 * What authentication costs without actors and without a store: uWebSockets.js, one thread, the
 * SHA-256 of the credential, a look-up in a map of that thread, and the answer with all headers as
 * Halos writes them. What Halos costs beyond it is the hop to the actor and its catch-up.
 *
 *   node bare-look-up.js --ready-file FILE --devices FILE
 *
 * `--devices` names a JSON file `[{id, user, digest}, …]`. Whatever is not found gets a bare 401.
 */

import uWS from 'uWebSockets.js';
import { readFileSync } from 'node:fs';
import { digestOf } from '../../src/actors/secrets.js';
import { RequestIds } from '../../src/http/request-id.js';
import { systemRandom } from '../../src/runtime/random.js';
import { baselineOptions, listenUntilTold } from './baseline-process.js';

/** One device as the map holds it, by its digest. */
export interface KnownDevice {
  readonly id: string;
  readonly user: string;
  readonly digest: string;
}

const PREFIX = 'Bearer ';

function serve(readyFile: string, known: readonly KnownDevice[]): void {
  const devices = new Map(known.map((device) => [device.digest, device]));
  const requestIds = new RequestIds(systemRandom);
  const app = uWS.App();
  app.any('/*', (response, request) => {
    const authorization = request.getHeader('authorization');
    const device = authorization.startsWith(PREFIX)
      ? devices.get(digestOf(authorization.slice(PREFIX.length)))
      : undefined;
    if (device === undefined) {
      response.writeStatus('401 Unauthorized').end();
      return;
    }
    const { id, user } = device;
    const requestId = requestIds.for(request.getHeader('x-request-id'));
    response.writeHeader(
      'x-halo-device',
      `${id}\r\nx-halo-user: ${user}\r\ncontent-type: application/json` +
        `\r\ncache-control: no-store\r\nx-request-id: ${requestId}`,
    );
    response.end(`{"device":{"id":"${id}","user":"${user}"}}`);
  });
  listenUntilTold(app, readyFile);
}

const options = baselineOptions(['devices']);
serve(options['ready-file'], JSON.parse(readFileSync(options.devices, 'utf8')) as KnownDevice[]);
