/** The parent's side of a process of gateways; see `stream-clients-process.ts`. */
import type { ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { endChild, spawnTracked } from './child-processes.js';
import { mapConcurrently, postJson } from './devices.js';
import type { StreamAnswer, StreamCommand } from './stream-clients-process.js';

const SCRIPT = fileURLToPath(new URL('./stream-clients-process.js', import.meta.url));
export const STREAM_PATH = '/api/v1/kill-list/stream';
/** Below what the server lets one token have on one front thread. */
const STREAMS_PER_TOKEN = 50;
/** A child that does not end by itself when asked has nothing to lose. */
const STOP_GRACE_MS = 2_000;

/** One process of gateways; one command at a time. */
export class StreamClients {
  private readonly child: ChildProcess = spawnTracked(process.execPath, [SCRIPT], {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });

  /** Rejects when the process says that it failed, or ends. */
  ask(command: StreamCommand): Promise<StreamAnswer> {
    return new Promise((resolve, reject) => {
      const ended = (): void => reject(new Error('the gateways’ process ended'));
      this.child.once('exit', ended);
      this.child.once('message', (answer: StreamAnswer & { error?: string }) => {
        this.child.off('exit', ended);
        if (answer.error === undefined) resolve(answer);
        else reject(new Error(answer.error));
      });
      this.child.send(command);
    });
  }

  async stop(): Promise<void> {
    await endChild(this.child, STOP_GRACE_MS);
  }
}

/** Tokens for so many streams. */
export function gatewayTokens(url: string, adminToken: string, streams: number): Promise<string[]> {
  const count = Math.ceil(streams / STREAMS_PER_TOKEN);
  return mapConcurrently(
    Array.from({ length: count }, (_, index) => index),
    async (index) => {
      const made = await postJson<{ token: string }>(
        `${url}/api/v1/gateways`,
        { name: `load-${index}` },
        adminToken,
      );
      return made.token;
    },
  );
}

/** Kills an agent; the version, and the monotonic time at which the 200 had arrived. */
export async function timedKill(
  url: string,
  adminToken: string,
  id: string,
): Promise<{ version: number; epoch: string; answeredMs: number }> {
  const response = await fetch(`${url}/api/v1/kill-list/agent/${id}`, {
    method: 'PUT',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${adminToken}` },
    body: JSON.stringify({ reason: 'load run' }),
  });
  const [seconds, nanoseconds] = process.hrtime();
  const { version, epoch } = (await response.json()) as { version: number; epoch: string };
  if (response.status !== 200) throw new Error(`a kill was answered ${response.status}`);
  return { version, epoch, answeredMs: seconds * 1000 + nanoseconds / 1e6 };
}
