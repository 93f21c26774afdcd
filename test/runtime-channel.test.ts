import { MessageChannel } from 'node:worker_threads';
import t, { type Test } from 'tap';
import { ActorChannel } from '../src/runtime/actor-channel.js';
import type { ActorRef, AskOptions } from '../src/runtime/ask.js';
import { systemClock } from '../src/runtime/clock.js';
import type { AnswerMessage, AskMessage } from '../src/runtime/protocol.js';
import { keepAlive } from './fixtures/keep-alive.js';
import { asked, Gate, openToy, type Toy, until } from './fixtures/toy-actor.js';

keepAlive(t);

function connect(t: Test, toy: Toy): { channel: ActorChannel; messages: AskMessage[] } {
  const { port1, port2 } = new MessageChannel();
  const messages: AskMessage[] = [];
  const channel = new ActorChannel(systemClock, (_, kind) => kind.startsWith('write'));
  port1.on('message', (message: AnswerMessage) => channel.receive(message));
  port2.on('message', (message: AskMessage) => {
    messages.push(message);
    toy.host.receive(message, port2);
  });
  channel.attach(port1);
  t.teardown(async () => {
    channel.detach();
    port2.close();
    await toy.host.close();
  });
  return { channel, messages };
}

t.test('asks of one turn travel in one message for each kind', async (t) => {
  const { channel, messages } = connect(t, await openToy());
  const ref = channel.ref('toy');
  const answers = await Promise.all([
    asked(ref, 'read', 1),
    asked(ref, 'write', 2),
    asked(ref, 'read', 3),
    asked(ref, 'read', 4),
  ]);
  t.same(answers, [1, 2, 3, 4]);
  t.same(
    messages.map(({ kind, payloads }) => [kind, payloads]),
    [
      ['read', [1, 3, 4]],
      ['write', [2]],
    ],
  );
  t.equal(channel.pendingCount, 0);
});

t.test('what was asked so far can leave before the turn ends', async (t) => {
  const { channel, messages } = connect(t, await openToy());
  const ref = channel.ref('toy');
  const early = [asked(ref, 'read', 1), asked(ref, 'read', 2)];
  channel.sendNow();
  const late = asked(ref, 'read', 3);
  t.same(await Promise.all([...early, late]), [1, 2, 3]);
  t.same(
    messages.map(({ payloads }) => payloads),
    [[1, 2], [3]],
  );
  t.equal(channel.pendingCount, 0);
});

t.test('answers of one group may come apart and out of order', async (t) => {
  const gates = new Map([
    ['slow', new Gate()],
    ['slower', new Gate()],
  ]);
  const toy = await openToy({
    read: (_, payload) => gates.get(payload as string)?.opened.then(() => payload) ?? payload,
  });
  const { channel } = connect(t, toy);
  const ref = channel.ref('toy');
  const order: unknown[] = [];
  const all = ['slower', 'quick', 'slow'].map((payload) =>
    asked(ref, 'read', payload).then((answer) => order.push(answer)),
  );
  await all[1];
  gates.get('slow')!.open();
  await all[2];
  gates.get('slower')!.open();
  await Promise.all(all);
  t.same(order, ['quick', 'slow', 'slower']);
});

t.test('when the port goes, reads were not done and sent writes may have been', async (t) => {
  const gate = new Gate();
  const toy = await openToy({ refresh: () => gate.opened, write: () => gate.opened as never });
  const { channel } = connect(t, toy);
  const ref = channel.ref('toy');
  const read = asked(ref, 'read', 1);
  const write = asked(ref, 'write', 1);
  await until(() => toy.events.includes('write 1'));
  const unsent = asked(ref, 'write', 2);
  channel.detach();
  t.match(await read, { failure: 'actor_restarted' });
  t.match(await write, { failure: 'outcome_unknown' });
  t.match(await unsent, { failure: 'actor_restarted' }, 'it never left');
  t.match(await asked(ref, 'read', 2), { failure: 'actor_restarted' }, 'and none is taken now');
  t.equal(channel.pendingCount, 0);
  gate.open();
});

t.test('an actor thread that does not answer is answered for after the deadline', async (t) => {
  const channel = new ActorChannel(systemClock, (_, kind) => kind.startsWith('write'));
  channel.attach({ postMessage: () => undefined, close: () => undefined });
  t.teardown(() => channel.detach());
  const ref = channel.ref('toy');
  const [read, write] = await Promise.all([
    asked(ref, 'read', 1, { deadlineMs: 10 }),
    asked(ref, 'write', 1, { deadlineMs: 10 }),
  ]);
  t.match(read, { failure: 'deadline_exceeded' });
  t.match(write, { failure: 'outcome_unknown' });
});

/** Asks and notes whether the answer came before `ask` returned. */
function askedInTurn(ref: ActorRef, options?: AskOptions): { early: boolean; answer: unknown } {
  const outcome = { early: false, answer: undefined as unknown };
  let asking = true;
  const answered = (answer: unknown): void => {
    outcome.early = asking;
    outcome.answer = answer;
  };
  ref.ask('read', 0, { answered }, options);
  asking = false;
  return outcome;
}

t.test('an ask that cannot be sent is answered after it returned, never within', async (t) => {
  const channel = new ActorChannel(systemClock, () => false);
  t.teardown(() => channel.detach());
  const detached = askedInTurn(channel.ref('toy'));
  await until(() => detached.answer !== undefined);
  t.match(detached, { early: false, answer: { failure: 'actor_restarted' } });
  channel.attach({ postMessage: () => undefined, close: () => undefined });
  const ref = channel.ref('toy');
  let lost = 0;
  const fill = (count: number, options: AskOptions): void => {
    const sink = { answered: () => (lost += 1) };
    for (let asks = 0; asks < count; asks += 1) ref.ask('read', 0, sink, options);
  };
  fill(131_072, { operator: false });
  const full = askedInTurn(ref);
  await until(() => full.answer !== undefined);
  t.match(full, { early: false, answer: { failure: 'overloaded' } });
  t.equal(lost, 0);
  fill(1_024, { operator: true });
  const operator = askedInTurn(ref, { operator: true });
  await until(() => operator.answer !== undefined);
  t.match(operator, { early: false, answer: { failure: 'overloaded' } }, 'the reserve ends too');
  t.equal(channel.pendingCount, 131_072 + 1_024, 'operators had their reserve');
});

t.test('a full lane in the same thread answers after the ask returned', async (t) => {
  const bounds = { readLane: { depthMax: 1, operatorReserve: 0 } };
  const toy = await openToy({}, bounds);
  t.teardown(() => toy.host.close());
  const first = asked(toy.ref, 'read', 1);
  const refused = askedInTurn(toy.ref);
  t.equal(await first, 1);
  await until(() => refused.answer !== undefined);
  t.match(refused, { early: false, answer: { failure: 'overloaded' } });
});
