/**
 * The one list of load profiles: `--list`, `--help` and the error for a wrong name are made of it,
 * and `run.ts` has a function for each name, or does not compile.
 */

/** What a profile is for, and what it runs with unless something else is asked for. */
export interface ProfileEntry {
  readonly name: string;
  /** One line, for `--list`. */
  readonly summary: string;
  readonly backend: 'file' | 'postgres';
  readonly replicas: number;
  readonly connections: number;
  /** Requests/s; absent: as fast as they are answered, or as the profile finds out itself. */
  readonly rate?: number;
  readonly durationSeconds: number;
  readonly rounds: number;
  /** 0 where there are none. */
  readonly devices: number;
  /** Open streams of the kill list, where the profile is about them. */
  readonly streams?: number;
  /** Backend, replicas and connections are part of what the profile is. */
  readonly fixed?: true;
}

const SERVERS_IN_TURN = { backend: 'file', replicas: 1, connections: 64, rounds: 3 } as const;
const ONE_ROUND = { connections: 64, rounds: 1, devices: 1_000, fixed: true } as const;

export const PROFILES = [
  {
    ...SERVERS_IN_TURN,
    name: 'device-auth',
    summary: 'authentications, as fast as they are answered, beside three baselines',
    durationSeconds: 9,
    devices: 1_000,
  },
  {
    ...SERVERS_IN_TURN,
    name: 'device-scale',
    summary: 'a thousand devices beside a million: authentication, start, memory',
    durationSeconds: 9,
    devices: 1_000_000,
  },
  {
    ...ONE_ROUND,
    name: 'device-auth-churn',
    summary: 'two replicas at a steady rate while devices come and go; every answer is judged',
    backend: 'postgres',
    replicas: 2,
    rate: 5_000,
    durationSeconds: 20,
  },
  {
    ...ONE_ROUND,
    name: 'overload',
    summary: 'twice what the server can serve: who is served in time, who is refused at once',
    backend: 'file',
    replicas: 1,
    durationSeconds: 10,
  },
  {
    ...ONE_ROUND,
    name: 'kill-fanout',
    summary: 'a kill’s way to thousands of streams on two replicas, beside bare publishing',
    backend: 'postgres',
    replicas: 2,
    durationSeconds: 20,
    streams: 5_000,
  },
  {
    ...ONE_ROUND,
    name: 'reconnect-storm',
    summary: 'thousands of streams cut at once, and a restart under them: all back, at what cost',
    backend: 'postgres',
    replicas: 2,
    durationSeconds: 20,
    streams: 5_000,
  },
  {
    ...ONE_ROUND,
    name: 'idle-streams',
    summary: 'what thousands of idle streams cost in memory and processor time',
    backend: 'postgres',
    replicas: 1,
    durationSeconds: 20,
    streams: 10_000,
  },
  {
    ...ONE_ROUND,
    name: 'decisions',
    summary: 'decisions over two replicas, at a steady rate and as fast as they come; all chained',
    backend: 'postgres',
    replicas: 2,
    rate: 1_000,
    durationSeconds: 15,
    devices: 0,
  },
  {
    ...ONE_ROUND,
    name: 'enqueue',
    summary: 'evidence made durable by one lane, beside one INSERT per transaction',
    backend: 'postgres',
    replicas: 1,
    connections: 256,
    durationSeconds: 10,
    rounds: 5,
    devices: 0,
  },
  {
    ...ONE_ROUND,
    name: 'chain-drain',
    summary: 'the outbox drained into the chain, beside an append under the head’s lock each',
    backend: 'postgres',
    replicas: 1,
    connections: 16,
    durationSeconds: 10,
    rounds: 5,
    devices: 0,
  },
  {
    ...ONE_ROUND,
    name: 'verify',
    summary: 'a million records proved by halo-verify, beside Ed25519 alone on all cores',
    backend: 'file',
    replicas: 1,
    durationSeconds: 60,
    rounds: 1,
    devices: 0,
  },
] as const satisfies readonly ProfileEntry[];

export type Profile = (typeof PROFILES)[number]['name'];

/** The entry of that name; undefined when there is none. */
export function profileNamed(name: string): (ProfileEntry & { name: Profile }) | undefined {
  return PROFILES.find((profile) => profile.name === name);
}

/** The names, each with its summary, a line each. */
export function profileList(): string {
  const width = Math.max(...PROFILES.map(({ name }) => name.length));
  return PROFILES.map(({ name, summary }) => `${name.padEnd(width)}  ${summary}`).join('\n');
}
