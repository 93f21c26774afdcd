/** Timers of `Clock` do not keep the process alive; whoever waits and must not end uses this. */
import { MessageChannel } from 'node:worker_threads';

/** Keeps the process alive until the returned function is called, which is idempotent. */
export function keepProcessAlive(): () => void {
  const { port1 } = new MessageChannel();
  port1.on('message', () => undefined);
  return () => port1.close();
}
