/**
 * The limit: uWebSockets.js alone, one thread, one constant answer with the same body and headers
 * as Halos gives. What a request costs here is the network, the parser and the write; everything
 * above it is ours.
 *
 *   node bare-uws.js --ready-file FILE --answer FILE
 *
 * `--answer` names a JSON file `{headers: [[name, value], …], body}`, taken from a real answer.
 */

import uWS from 'uWebSockets.js';
import { readFileSync } from 'node:fs';
import { baselineOptions, listenUntilTold } from './baseline-process.js';

/** An answer as it is sent: the server adds what the library always adds, and the length. */
export interface ConstantAnswer {
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: string;
}

function serve(readyFile: string, answer: ConstantAnswer): void {
  const [first, ...rest] = answer.headers;
  if (first === undefined) throw new Error('The constant answer needs at least one header.');
  // One native call for all headers is the cheapest way this library has, and this is the limit.
  const [firstName, firstValue] = first;
  const value = [firstValue, ...rest.map(([name, text]) => `${name}: ${text}`)].join('\r\n');
  const body = answer.body;
  const app = uWS.App();
  app.any('/*', (response) => {
    response.writeHeader(firstName, value);
    response.end(body);
  });
  listenUntilTold(app, readyFile);
}

const options = baselineOptions(['answer']);
serve(options['ready-file'], JSON.parse(readFileSync(options.answer, 'utf8')) as ConstantAnswer);
