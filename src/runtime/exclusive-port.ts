/**
 * Proves that nobody else has a port before front threads share it: with SO_REUSEPORT a second
 * server would go unnoticed.
 */
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { CodedError } from './failure.js';

/**
 * Binds the port exclusively and closes it again; with port 0 the system picks one. Returns the
 * port. Throws a `CodedError` `port_taken` when it is in use or may not be bound.
 */
export async function proveFreePort(host: string, port: number): Promise<number> {
  const server = createServer();
  server.listen({ host, port, exclusive: true });
  try {
    await once(server, 'listening');
  } catch (cause) {
    throw new CodedError('port_taken', `Cannot listen on ${host}:${port}.`, { cause });
  }
  const address = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return address.port;
}
