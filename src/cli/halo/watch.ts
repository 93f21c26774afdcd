/** `halo gateway watch`: what a gateway hears, as it hears it. */
import { followKillList, type KillEntry, type KillListEvent } from '../../client/gateway.js';
import { systemClock } from '../../runtime/clock.js';
import { printable } from '../console.js';
import { type Api, ApiError } from './api.js';
import type { Output } from './command.js';

/**
 * Prints what arrives until the time is over, or until the process is told to stop. Rejects on a
 * gap (something between what is held and what arrives was missed), when the token is refused, and
 * when the time is over and there was no list.
 */
export function watchKillList(
  { url, token, tokenFile }: Pick<Api, 'url' | 'token' | 'tokenFile'>,
  output: Output,
  forMs: number | undefined,
): Promise<undefined> {
  return new Promise((resolve, reject) => {
    const end = (error?: ApiError): void => {
      list.close();
      if (error) reject(error);
      else resolve(undefined);
    };
    let hasList = false;
    const onEvent = (event: KillListEvent): void => {
      if (event.type === 'list') hasList = true;
      if (event.type === 'gap') {
        output.show({ value: event, text: '' });
        end(new ApiError(`a gap: version ${event.version} does not follow on ${event.held}`));
      } else if (event.type === 'refused') {
        end(
          new ApiError(
            `the token in ${tokenFile} is not a gateway’s, or was rotated away or removed: ` +
              'make one with `halo gateway create`, and name its file with --token-file',
          ),
        );
      } else {
        tell(event, output);
      }
    };
    const list = followKillList({ url, token, onEvent });
    if (forMs !== undefined) {
      const nothing = new ApiError(`no list arrived from ${url}`);
      systemClock.schedule(() => end(hasList ? undefined : nothing), forMs);
    }
  });
}

function tell(event: Exclude<KillListEvent, { type: 'gap' | 'refused' }>, output: Output): void {
  if (event.type === 'connected') {
    output.err(`connected to ${printable(event.url)}\n`);
  } else if (event.type === 'disconnected') {
    const { code, reason, retryInMs } = event;
    // 0 is no close code: there was no connection that could have been closed.
    const facts = [code === 0 ? '' : String(code), printable(reason)].filter((fact) => fact !== '');
    output.err(`disconnected (${facts.join(' ')}); again in ${retryInMs} ms\n`);
  } else {
    output.show({ value: event, text: linesOf(event) });
  }
}

type Heard = Extract<KillListEvent, { type: 'list' | 'change' | 'heartbeat' }>;

function linesOf(event: Heard): string {
  const at = String(event.version).padStart(6);
  switch (event.type) {
    case 'heartbeat':
      return `${at}  current as of ${event.asOf}\n`;
    case 'list': {
      const head = `${at}  the whole list: ${event.entries.length} killed\n`;
      return head + event.entries.map((entry) => `${at}  ${killLine(entry)}`).join('');
    }
    case 'change': {
      const kills = event.set.map((entry) => `${at}  ${killLine(entry)}`);
      const lifts = event.lift.map(({ kind, id }) => `${at}  lift ${printable(`${kind} ${id}`)}\n`);
      return [...kills, ...lifts].join('');
    }
  }
}

function killLine({ kind, id, reason, by, expiresAt }: KillEntry): string {
  const until = expiresAt === undefined ? '' : ` until ${expiresAt}`;
  return `kill ${printable(`${kind} ${id}: ${reason} (${by}${until})`)}\n`;
}
