/** `halo gateway list | create | rotate | remove | watch`. */
import { parseDurationMs } from '../option-values.js';
import type { CommandSpec } from './command.js';
import { createGateway, listGateways, removeGateway, rotateGateway } from './gateways.js';
import { watchKillList } from './watch.js';

/** API.md: the old token may go on working for an hour at most. */
const OVERLAP_BOUNDS = { minMs: 0, maxMs: 3_600_000 };
/** A day: whoever watches for longer does so until they stop it. */
const WATCH_BOUNDS = { minMs: 100, maxMs: 24 * 3_600_000 };

const LIST: CommandSpec = {
  usage: 'list',
  description: 'gateways and what they acknowledged (what `halo gateway` alone does)',
  isDefault: true,
  options: [{ name: 'behind', help: 'only connected ones below the newest version' }],
  prepare: ({ given }) => {
    const behind = given.on('behind');
    return (api) => listGateways(api, behind);
  },
};

const CREATE: CommandSpec = {
  usage: 'create <name>',
  description: 'make a gateway, and print its token',
  prepare:
    ({ words: [name = ''] }) =>
    (api) =>
      createGateway(api, name),
};

const ROTATE: CommandSpec = {
  usage: 'rotate <id>',
  description: 'make a new token for a gateway, and print it',
  options: [
    { name: 'overlap', value: 'DURATION', help: 'how long the old one still works, 0s to 1h' },
  ],
  prepare: ({ words: [id = ''], given }) => {
    const text = given.text('overlap');
    const overlapMs =
      text === undefined ? undefined : parseDurationMs('--overlap', text, OVERLAP_BOUNDS);
    return (api) => rotateGateway(api, id, overlapMs === undefined ? undefined : overlapMs / 1000);
  },
};

const REMOVE: CommandSpec = {
  usage: 'remove <id>',
  description: 'shut a gateway out for good, on every replica',
  prepare:
    ({ words: [id = ''] }) =>
    (api) =>
      removeGateway(api, id),
};

const WATCH: CommandSpec = {
  usage: 'watch',
  description: 'follow the kill list as a gateway does, and print what arrives',
  tokenHelp: 'a gateway’s token, as `halo gateway create` prints it (required)',
  options: [{ name: 'for', value: 'DURATION', help: 'end after so long (default: never)' }],
  prepare: ({ given }) => {
    const text = given.text('for');
    const forMs = text === undefined ? undefined : parseDurationMs('--for', text, WATCH_BOUNDS);
    return (api, output) => watchKillList(api, output, forMs);
  },
};

/** In the order of the help. */
export const GATEWAY_COMMANDS: readonly CommandSpec[] = [LIST, CREATE, ROTATE, REMOVE, WATCH];
