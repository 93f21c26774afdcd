/**
 * `halo check | approve | deny`: against a server, or one-shot on the data itself where no server
 * is needed or runs.
 */
import type { PolicyRequest } from '../../policy/policy.js';
import { factsText } from '../console.js';
import { UsageError } from '../exit-codes.js';
import type { GivenOptions, OptionSpec } from '../option-table.js';
import { type Api, isRecord, textOf, unexpected } from './api.js';
import type { CommandSpec, Shown } from './command.js';
import { ONE_SHOT_OPTIONS, oneShotPlace, withDecisions } from './one-shot.js';

/** `Type::id`, with or without quotes around the id; types may have namespaces. */
const ENTITY = /^((?:[A-Za-z_]\w*::)+)(?:"(.*)"|(.+))$/s;

const CHECK_OPTIONS: ReadonlyArray<OptionSpec<string>> = [
  { name: 'attrs', value: 'JSON', help: 'what is known of the resource' },
  { name: 'context', value: 'JSON', help: 'what policies may look at' },
  { name: 'approval', value: 'REF', help: 'an approved decision, to redeem it' },
];

const CHECK: CommandSpec = {
  usage: 'check <principal> <action> <resource>',
  description: 'whether a principal may do something, such as Agent::a tool:call Tool::search',
  options: [...CHECK_OPTIONS, ...ONE_SHOT_OPTIONS],
  prepare: (call) => {
    const { request, approval } = readRequest(call.words, call.given);
    const body = { ...request, ...(approval === undefined ? {} : { approval }) };
    return async (api) => shownDecision(await api.post('/api/v1/decisions', body));
  },
  offline: (call) => {
    const place = oneShotPlace(call.given);
    if (place === undefined) return undefined;
    const { request, approval } = readRequest(call.words, call.given);
    return () =>
      withDecisions(place, async (decisions, caller) => {
        const wanted = { request, caller, ...(approval === undefined ? {} : { approval }) };
        const decided = await decisions.decide(wanted);
        return { refs: [decided.ref], shown: shownDecision({ ...decided, pending: false }) };
      });
  },
};

function settleCommand(word: 'approve' | 'deny'): CommandSpec {
  return {
    usage: `${word} <ref>`,
    description: `${word} a decision that needs approval`,
    options: [
      { name: 'reason', value: 'TEXT', help: 'why; it is recorded (required)' },
      ...ONE_SHOT_OPTIONS,
    ],
    prepare: ({ words: [ref = ''], given }) => {
      const reason = reasonOf(given);
      return (api: Api) =>
        api
          .post(`/api/v1/decisions/${encodeURIComponent(ref)}/${word}`, { reason })
          .then(shownApproval);
    },
    offline: ({ words: [ref = ''], given }) => {
      const place = oneShotPlace(given);
      if (place === undefined) return undefined;
      const reason = reasonOf(given);
      return () =>
        withDecisions(place, async (decisions, { id: by }) => {
          const settled =
            word === 'approve'
              ? await decisions.approve({ ref, by, reason })
              : await decisions.deny({ ref, by, reason });
          const { status, by: whose, atMs, expiresAtMs } = settled.approval;
          const shown = shownApproval({
            status,
            by: whose,
            at: atMs === undefined ? undefined : new Date(atMs).toISOString(),
            expiresAt: new Date(expiresAtMs).toISOString(),
          });
          return { refs: [], shown: { ...shown, hasFailed: !settled.isDone } };
        });
    },
  };
}

/** In the order of the help. */
export const DECISION_COMMANDS: readonly CommandSpec[] = [
  CHECK,
  settleCommand('approve'),
  settleCommand('deny'),
];

function readRequest(
  words: readonly string[],
  given: GivenOptions<string>,
): { readonly request: PolicyRequest; readonly approval: string | undefined } {
  const [principal = '', action = '', resource = ''] = words;
  const attrs = jsonObject(given, 'attrs');
  const context = jsonObject(given, 'context');
  return {
    request: {
      principal: entity(principal),
      action,
      resource: { ...entity(resource), ...(attrs === undefined ? {} : { attrs }) },
      ...(context === undefined ? {} : { context }),
    },
    approval: given.text('approval'),
  };
}

function entity(text: string): { type: string; id: string } {
  const [, types = '', quoted, plain] = ENTITY.exec(text) ?? [];
  const id = quoted ?? plain;
  if (id === undefined) throw new UsageError('principal and resource are written Type::id');
  return { type: types.slice(0, -2), id };
}

function jsonObject(given: GivenOptions<string>, name: string): PolicyRequest['context'] {
  const text = given.text(name);
  if (text === undefined) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    if (isRecord(value)) return value as PolicyRequest['context'];
  } catch {
    // Told below.
  }
  throw new UsageError(`--${name} takes a JSON object`);
}

function reasonOf(given: GivenOptions<string>): string {
  const reason = given.text('reason');
  if (reason === undefined) throw new UsageError('say why with --reason');
  return reason;
}

function shownDecision(value: unknown): Shown {
  const { decision, reasons, ref, pending } = isRecord(value) ? value : {};
  if (typeof decision !== 'string' || !Array.isArray(reasons)) throw unexpected();
  const text = factsText([
    ['decision', decision],
    ['reasons', reasons.map(String).join(', ')],
    ['ref', textOf(ref) ?? ''],
    ['chained', pending === true ? 'soon' : 'yes'],
  ]);
  return { value, text, hasFailed: decision !== 'allow' };
}

function shownApproval(value: unknown): Shown {
  const { status, by, at, expiresAt } = isRecord(value) ? value : {};
  if (typeof status !== 'string') throw unexpected();
  const text = factsText([
    ['status', status],
    ['by', textOf(by) ?? ''],
    ['at', textOf(at) ?? ''],
    ['expires', textOf(expiresAt) ?? ''],
  ]);
  return { value, text };
}
