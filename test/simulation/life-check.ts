/** Whether the answers about one device, taken together, are what the reference allows. */
import type { DeviceView } from '../../src/actors/devices/messages.js';
import { READ_DEADLINE_MS } from '../../src/runtime/actor.js';
import { FRESHNESS_MAX_MS } from '../../src/runtime/freshness.js';
import { type Step, unexplained } from './explain.js';
import { type Call, describeCall, saidBy } from './history.js';
import { type LifeState, learn, learnView, NO_LIFE, outcomesOf, turned } from './reference.js';
import type { World } from './world.js';

/**
 * How long after an answer for want of time a call may still have its effect: its process may have
 * been stopped before the commit, and the store may have taken its time. When an answer was lost
 * on its way or with its process, all that ever happens has happened.
 */
const EFFECT_LATE_MAX_MS = 10_000;

/** Calls that a failure shows: a contradiction is seldom between calls further apart. */
const SHOWN_MAX = 60;

/** Names of devices begin with the number of their life, so that a list tells whose they are. */
export function deviceName(life: number, suffix: string): string {
  return `${life}/${suffix}`;
}

/** Whose device it is. */
export function lifeOf(view: DeviceView): number {
  return Number(view.name.split('/')[0]);
}

/** What is wrong with the answers about one life, with all of them, or undefined. */
export function wrongAbout(world: World, life: number): string | undefined {
  const user = world.userOfLife.get(life) ?? '';
  const steps = stepsOf(world, life, user);
  const found = unexplained(steps, NO_LIFE);
  if (!found) return undefined;
  const untilMs = Math.max(...found.stuck.map(({ endedMs }) => endedMs));
  const before = steps.filter(({ beganMs }) => beganMs <= untilMs).slice(-SHOWN_MAX);
  const reason = found.gaveUp ? 'too many orders to look at them all' : 'no order explains them';
  return [
    `the answers about device ${life} contradict each other: ${reason}.`,
    `At best it comes to ${JSON.stringify(found.state)}`,
    'and then none of these fits:',
    ...found.stuck.map(({ label }) => `  ${label}`),
    `What was asked about it until then (the last ${before.length}):`,
    ...before.map(({ label }) => `  ${label}`),
  ].join('\n');
}

function stepsOf(world: World, life: number, user: string): Step<LifeState>[] {
  const { calls, turns } = world.history;
  const unconfirmedPossible = calls.some(
    ({ asked, life: whose }) =>
      whose === life && asked.kind === 'enroll' && (asked.key ?? asked.deviceKey) !== undefined,
  );
  const steps: Step<LifeState>[] = [];
  for (const { kind, atMs } of turns) {
    steps.push({
      label: `${atMs.toFixed(3)} ${kind}`,
      name: `${atMs} ${kind}`,
      beganMs: atMs,
      endedMs: atMs,
      optional: false,
      isPure: () => false,
      after: (state) => [turned(state, kind)],
    });
  }
  for (const call of calls) {
    if (concerns(call, life, user))
      steps.push(...callSteps(world, call, user, unconfirmedPossible));
    if (call.asked.kind === 'list') steps.push(...listSteps(call, life, user));
  }
  return steps.sort((one, other) => one.beganMs - other.beganMs);
}

function concerns({ asked, life: whose }: Call, life: number, user: string): boolean {
  if (whose === life) return true;
  if (asked.kind === 'void') return asked.user === user;
  if (asked.kind !== 'kill' && asked.kind !== 'lift') return false;
  return asked.target.kind === 'user' && asked.target.id === user;
}

function callSteps(
  world: World,
  call: Call,
  user: string,
  unconfirmedPossible: boolean,
): Step<LifeState>[] {
  const { asked, answer, number, beganMs } = call;
  const said = saidBy(call);
  if (said === 'nothing' || said === 'forbidden') return [];
  const value = answer && 'value' in answer ? answer.value : undefined;
  const code = answer && 'code' in answer ? answer.code : undefined;
  const unknown = said === 'unknown';
  const late = unknown && code !== 'stale' && (call.endedMs ?? 0) - beganMs >= READ_DEADLINE_MS;
  const endedMs = (call.endedMs ?? 0) + (late ? EFFECT_LATE_MAX_MS : 0);
  // An allow must rest on what was true within the last second before it left.
  const sinceMs = value?.allowed ? Math.max(beganMs, endedMs - FRESHNESS_MAX_MS) : beganMs;
  const secret = value?.token ?? value?.credential ?? `lost-${number}`;
  const circumstances = { moment: world.storeTime.during(sinceMs, endedMs), user, secret };
  const restored = world.history.turns.some(
    ({ kind, atMs }) => kind === 'restore' && atMs >= sinceMs && atMs <= endedMs,
  );
  const isPure = (state: LifeState): boolean =>
    said === 'refused' ||
    asked.kind === 'get' ||
    (asked.kind === 'authenticate' &&
      (!unconfirmedPossible || (!restored && state.device?.unconfirmed === false)));
  if (unknown && (asked.kind === 'get' || isPure(NO_LIFE))) return [];
  return [
    {
      label: describeCall(call),
      name: JSON.stringify([sinceMs, endedMs, asked, answer]),
      beganMs: sinceMs,
      endedMs,
      optional: unknown,
      isPure,
      after: (state) =>
        outcomesOf(state, asked, circumstances).flatMap((outcome) => {
          if (unknown) return outcome.refused === undefined ? [outcome.state] : [];
          if (value === undefined) return outcome.refused === code ? [outcome.state] : [];
          if (outcome.refused !== undefined) return [];
          return learn(outcome.state, asked, value, user) ?? [];
        }),
    },
  ];
}

/** What a list says about one device: how it is, or, if the list is whole, that there is none. */
function listSteps(call: Call, life: number, user: string): Step<LifeState>[] {
  const { asked, answer, beganMs, endedMs = 0 } = call;
  const value = answer && 'value' in answer ? answer.value : undefined;
  if (asked.kind !== 'list' || value?.items === undefined) return [];
  const views = value.items.filter((view) => lifeOf(view) === life);
  const whole =
    asked.after === 0 &&
    value.next === undefined &&
    (asked.user === undefined || asked.user === user);
  if (views.length === 0 && !whole) return [];
  return [
    {
      label: describeCall({ ...call, answer: { value: { items: views } } }),
      name: `list ${call.number}`,
      beganMs,
      endedMs,
      optional: false,
      isPure: () => true,
      after: (state) => {
        const [view, ...more] = views;
        if (view === undefined) return state.device ? [] : [state];
        const learnt = more.length > 0 ? undefined : learnView(state, view, user);
        return learnt ? [learnt] : [];
      },
    },
  ];
}
