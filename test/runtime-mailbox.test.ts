import t from 'tap';
import { Escalate, MustReopen } from '../src/runtime/actor.js';
import { CodedError } from '../src/runtime/failure.js';
import { keepAlive } from './fixtures/keep-alive.js';
import { asked, Gate, openToy, until } from './fixtures/toy-actor.js';

keepAlive(t);

t.test('asks that arrive during a catch-up share the next one, begun after them', async (t) => {
  const toy = await openToy();
  t.teardown(() => toy.host.close());
  const gates = [new Gate(), new Gate()];
  let refreshes = 0;
  toy.handlers = { refresh: () => gates[refreshes++]!.opened };
  const first = asked(toy.ref, 'read', 'a');
  await until(() => refreshes === 1);
  const later = Promise.all(['b', 'c', 'd'].map((payload) => asked(toy.ref, 'read', payload)));
  gates[0]!.open();
  t.equal(await first, 'a');
  await until(() => refreshes === 2);
  gates[1]!.open();
  t.same(await later, ['b', 'c', 'd']);
  t.equal(refreshes, 2, 'one catch-up for the three of them');
});

t.test('writes that arrive during a commit share the next one; reads do not wait', async (t) => {
  const toy = await openToy();
  t.teardown(() => toy.host.close());
  const gate = new Gate();
  toy.handlers = {
    write: async (batch) => {
      await gate.opened;
      return batch.map((ask) => ask.payload);
    },
  };
  const first = asked(toy.ref, 'write', 1);
  await until(() => toy.events.includes('write 1'));
  const rest = Promise.all([2, 3, 4].map((payload) => asked(toy.ref, 'write', payload)));
  t.equal(await asked(toy.ref, 'read', 'r'), 'r', 'answered while the commit runs');
  gate.open();
  t.equal(await first, 1);
  t.same(await rest, [2, 3, 4]);
  t.same(
    toy.events.filter((event) => event.startsWith('write')),
    ['write 1', 'write 3'],
  );
});

t.test('a full lane answers overloaded at once, and the reserve is for operators', async (t) => {
  const bounds = { writeLane: { depthMax: 2, operatorReserve: 1 } };
  const toy = await openToy({}, bounds);
  t.teardown(() => toy.host.close());
  const gate = new Gate();
  toy.handlers = {
    write: async (batch) => {
      await gate.opened;
      return batch.map((ask) => ask.payload);
    },
  };
  const running = asked(toy.ref, 'write', 0);
  await until(() => toy.events.includes('write 1'));
  const waiting = [asked(toy.ref, 'write', 1), asked(toy.ref, 'write', 2)];
  t.match(await asked(toy.ref, 'write', 3), { failure: 'overloaded', retryAfterSeconds: 1 });
  const operator = asked(toy.ref, 'write', 'kill', { operator: true });
  t.match(await asked(toy.ref, 'write', 'kill too', { operator: true }), { failure: 'overloaded' });
  gate.open();
  t.same(await Promise.all([running, ...waiting, operator]), [0, 1, 2, 'kill']);
});

t.test('an ask whose deadline passes while it waits is answered and never run', async (t) => {
  const toy = await openToy();
  t.teardown(() => toy.host.close());
  const gate = new Gate();
  const ran: unknown[] = [];
  toy.handlers = {
    write: async (batch) => {
      ran.push(...batch.map((ask) => ask.payload));
      await gate.opened;
      return batch.map((ask) => ask.payload);
    },
  };
  const running = asked(toy.ref, 'write', 1);
  await until(() => ran.length === 1);
  t.match(await asked(toy.ref, 'write', 2, { deadlineMs: 20 }), { failure: 'deadline_exceeded' });
  gate.open();
  await running;
  t.equal(await asked(toy.ref, 'write', 3), 3);
  t.same(ran, [1, 3]);
});

t.test('a failed catch-up fails its batch alone', async (t) => {
  const toy = await openToy();
  t.teardown(() => toy.host.close());
  toy.handlers = { refresh: () => Promise.reject(new CodedError('store_unavailable', 'gone')) };
  t.match(await asked(toy.ref, 'read', 1), { failure: 'store_unavailable' });
  toy.handlers = {};
  t.equal(await asked(toy.ref, 'read', 2), 2);
  t.same(toy.events.filter((event) => event === 'open').length, 1, 'no restart');
});

t.test('a bug in a handler answers what is pending and restarts the actor', async (t) => {
  const toy = await openToy();
  t.teardown(() => toy.host.close());
  toy.handlers = {
    read: (_, payload) => {
      if (payload === 'bug') throw new TypeError('a bug');
      return payload;
    },
  };
  const answers = await Promise.all(['a', 'bug', 'b'].map((p) => asked(toy.ref, 'read', p)));
  t.equal(answers[0], 'a', 'answered before the bug');
  t.match(answers[1], { failure: 'actor_restarted' });
  t.match(answers[2], { failure: 'actor_restarted' });
  await until(() => toy.events.filter((event) => event === 'open').length === 2);
  await until(() => toy.host.snapshots()[0]!.state === 'running');
  t.equal(await asked(toy.ref, 'read', 'c'), 'c');
  t.equal(toy.host.snapshots()[0]!.restarts, 1);
});

t.test('a bug while a commit runs leaves its outcome unknown', async (t) => {
  const toy = await openToy();
  t.teardown(() => toy.host.close());
  toy.handlers = { write: () => Promise.reject(new TypeError('a bug')) };
  t.match(await asked(toy.ref, 'write', 1), { failure: 'outcome_unknown' });
});

t.test('too many crashes in the window are said once, and the actor stays down', async (t) => {
  const toy = await openToy();
  t.teardown(() => toy.host.close());
  toy.handlers = {
    read: () => {
      throw new TypeError('a bug');
    },
  };
  for (let crash = 0; crash < 6; crash += 1) {
    await until(() => toy.host.snapshots()[0]!.state === 'running');
    t.match(await asked(toy.ref, 'read', crash), { failure: 'actor_restarted' });
  }
  t.same(toy.exhausted, ['toy']);
  t.equal(toy.host.snapshots()[0]!.state, 'stopped');
});

t.test('a view that must be opened anew answers store_unavailable meanwhile', async (t) => {
  const toy = await openToy();
  t.teardown(() => toy.host.close());
  const gate = new Gate();
  toy.handlers = {
    refresh: () => Promise.reject(new MustReopen('another history', undefined)),
    open: () => gate.opened,
  };
  t.match(await asked(toy.ref, 'read', 1), { failure: 'store_unavailable' });
  t.match(await asked(toy.ref, 'write', 1), { failure: 'store_unavailable' });
  toy.handlers = {};
  gate.open();
  await until(() => toy.host.snapshots()[0]!.state === 'running');
  t.equal(await asked(toy.ref, 'read', 2), 2);
  t.equal(toy.host.snapshots()[0]!.restarts, 0, 'not a crash');
});

t.test('a read that needs a write goes on in the write lane', async (t) => {
  const toy = await openToy({ read: (_, payload) => new Escalate('write it', payload) });
  t.teardown(() => toy.host.close());
  t.equal(await asked(toy.ref, 'read', 'x'), 'x');
  t.ok(toy.events.includes('write 1'));
});

t.test(
  'drained waits for what runs; close is idempotent and answers what comes later',
  async (t) => {
    const toy = await openToy();
    const gate = new Gate();
    toy.handlers = { refresh: () => gate.opened };
    const reading = asked(toy.ref, 'read', 1);
    await until(() => toy.events.includes('refresh'));
    let drained = false;
    const waiting = toy.host.drained().then(() => (drained = true));
    await new Promise((resolve) => setImmediate(resolve));
    t.notOk(drained);
    gate.open();
    t.equal(await reading, 1);
    await waiting;
    await Promise.all([toy.host.close(), toy.host.close()]);
    t.match(await asked(toy.ref, 'read', 2), { failure: 'actor_restarted' });
    t.equal(toy.events.filter((event) => event === 'close').length, 1);
  },
);
