/** Whatever is done to a chain shows; a chain to which nothing was done is never accused. */
import fc from 'fast-check';
import t from 'tap';
import { ChainVerifier, type Pins } from '../src/verify/chain-verifier.js';
import type { VerificationResult } from '../src/verify/findings.js';
import { firstBadSignature } from '../src/verify/signatures.js';
import { type LineChunk, verifyLines } from '../src/verify/verify-lines.js';
import { goodChain } from './fixtures/evidence-cases.js';
import { ChainBuilder, exportOf, TEST_KEYS } from './fixtures/evidence-chains.js';

const seed = Number(process.env['SEED'] ?? Date.now() % 2 ** 31);
t.comment(`seed ${seed}`);

/** The bytes of an export as they would be read, in pieces of so many lines. */
async function* chunksOf(bytes: Buffer, linesPerChunk: number): AsyncGenerator<LineChunk> {
  const parts = bytes.toString('latin1').split('\n');
  const rest = parts.pop();
  const lines = parts.map((part) => {
    const line = Buffer.from(part, 'latin1');
    const text = line.toString('utf8');
    return Buffer.from(text).equals(line) ? text : undefined;
  });
  for (let start = 0; start < lines.length; start += linesPerChunk) {
    yield { lines: lines.slice(start, start + linesPerChunk), bytesRead: 0, isTorn: false };
  }
  if (rest !== '') yield { lines: [], bytesRead: bytes.length, isTorn: true };
}

function verify(content: Buffer | readonly string[], pins: Pins = {}): Promise<VerificationResult> {
  const bytes = Buffer.isBuffer(content) ? content : Buffer.from(exportOf(content));
  return verifyLines(chunksOf(bytes, 3), {
    pins,
    endsAtHead: false,
    checkSignatures: async (batch) => firstBadSignature(batch),
    batchesMax: 2,
  });
}

t.test('no single byte of an export can change without being noticed', async (t) => {
  const lines = goodChain().lines;
  const bytes = Buffer.from(exportOf(lines));
  const starts: number[] = [];
  lines.reduce((start, line) => {
    starts.push(start);
    return start + Buffer.byteLength(line) + 1;
  }, 0);
  await fc.assert(
    fc.asyncProperty(
      fc.nat(bytes.length - 1),
      fc.integer({ min: 1, max: 255 }),
      async (at, xor) => {
        const changed = Buffer.from(bytes);
        changed[at] = (changed[at] ?? 0) ^ xor;
        const { status, finding } = await verify(changed);
        // A changed line end joins two lines or cuts the last one; all else names its own record,
        // by the number that the first line claims, since that may be any.
        const line = starts.findLastIndex((start) => start <= at);
        const first = changed.toString('latin1', 0, starts[1]);
        const claimed = Number(/"seq":(\d+),/.exec(first)?.[1] ?? 0);
        const seq = line === 0 ? claimed : line;
        const isLast = at === bytes.length - 1;
        return status !== 'verified' && (isLast || finding?.seq === seq);
      },
    ),
    { seed, numRuns: 1500 },
  );
  t.equal((await verify(bytes)).status, 'verified');
});

t.test('any cut, doubling, swap or removal of lines is named where it shows', async (t) => {
  const lines = goodChain().lines;
  await fc.assert(
    fc.asyncProperty(
      fc.nat(lines.length - 1),
      fc.nat(lines.length - 1),
      fc.constantFrom('remove', 'double', 'swap', 'cut'),
      async (one, two, how) => {
        const [first, second] = [Math.min(one, two), Math.max(one, two)];
        const changed = [...lines];
        if (how === 'remove') changed.splice(first, second - first + 1);
        else if (how === 'double') changed.splice(second, 0, lines[first]!);
        else if (how === 'cut') changed.splice(first);
        else [changed[first], changed[second]] = [lines[second]!, lines[first]!];
        if (exportOf(changed) === exportOf(lines)) return true;
        const { status, finding } = await verify(changed);
        const place = changed.findIndex((line, index) => line !== lines[index]);
        const isBeginning = changed.length > 0 && how === 'remove' && first === 0;
        const expected = isBeginning ? 0 : place === -1 ? changed.length : place;
        return (
          status !== 'verified' && (isBeginning || how === 'swap' || finding?.seq === expected)
        );
      },
    ),
    { seed, numRuns: 1000 },
  );
  t.pass('each was noticed');
});

t.test('a clean chain is never accused, whatever is in it', async (t) => {
  const step = fc.oneof(
    fc.record({ add: fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 4 })) }),
    fc.constant('checkpoint' as const),
    fc.constant('rotate' as const),
    fc.constant('restore' as const),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 12 }), fc.nat(11), async (steps, pinAt) => {
      const chain = new ChainBuilder();
      for (const one of steps) {
        if (one === 'checkpoint') chain.checkpoint();
        else if (one === 'rotate') chain.rotate(TEST_KEYS.find((key) => key.id !== chain.key.id)!);
        else if (one === 'restore') {
          chain.acceptRestore({ fromSeq: chain.head.seq + 1, toSeq: 99, toHash: chain.id });
        } else chain.add('decision.made', one.add as any);
      }
      chain.checkpoint();
      const checkpoints = chain.records.filter(({ kind }) => kind === 'chain.checkpoint');
      const { seq, hash } = checkpoints[pinAt % checkpoints.length]!;
      const publicKey = Buffer.from(TEST_KEYS[0].publicKey).toString('hex');
      const result = await verify(chain.lines, {
        key: { id: TEST_KEYS[0].id, publicKey },
        checkpoint: { seq, hash, chain: chain.id },
      });
      return (
        result.status === 'verified' &&
        result.isPinned &&
        result.records === chain.records.length &&
        result.head?.hash === chain.head.hash &&
        result.chain === chain.id
      );
    }),
    { seed, numRuns: 150 },
  );
  t.pass('none was accused');
});

t.test('of several faults the first in the chain is named, however late it is found', async (t) => {
  const lines = goodChain().lines;
  const unsigned = JSON.parse(lines[2]!);
  const changed = lines.with(2, lines[2]!.replace(unsigned.sig, JSON.parse(lines[1]!).sig));
  changed[4] = lines[4]!
    .replace('hunter', 'gather')
    .replace('dev', 'vex')
    .replace(/"at":"2/, '"at":"3');
  let release = (): void => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  const result = verifyLines(chunksOf(Buffer.from(exportOf(changed)), 1), {
    pins: {},
    endsAtHead: false,
    checkSignatures: async (batch) => {
      await held;
      return firstBadSignature(batch);
    },
    batchesMax: 9,
  });
  release();
  t.match(await result, {
    status: 'tampered',
    records: 2,
    finding: { seq: 2, check: 'signature' },
  });
});

t.test('a verification that cannot check signatures fails instead of passing', async (t) => {
  const result = verifyLines(chunksOf(Buffer.from(exportOf(goodChain().lines)), 3), {
    pins: {},
    endsAtHead: false,
    checkSignatures: () => Promise.reject(new Error('the pool died')),
    batchesMax: 2,
  });
  await t.rejects(result, { message: 'the pool died' });
});

t.test('no more batches are in flight than allowed', async (t) => {
  const chain = new ChainBuilder().addSome(3000).checkpoint();
  let inFlight = 0;
  let most = 0;
  const result = await verifyLines(chunksOf(Buffer.from(exportOf(chain.lines)), 1000), {
    pins: {},
    endsAtHead: false,
    checkSignatures: async (batch) => {
      inFlight += 1;
      most = Math.max(most, inFlight);
      await new Promise((resolve) => setImmediate(resolve));
      inFlight -= 1;
      return batch.count > 0 ? -1 : 0;
    },
    batchesMax: 2,
  });
  t.equal(result.records, 3002);
  t.equal(most, 2);
});

t.test('the verifier hands out one claim for each record it accepts', async (t) => {
  const chain = goodChain();
  const verifier = new ChainVerifier({});
  for (const [seq, line] of chain.lines.entries()) {
    const claim = verifier.accept(line);
    const key = seq > 6 ? TEST_KEYS[1] : TEST_KEYS[0];
    const publicKey = Buffer.from(key.publicKey).toString('hex');
    t.match(claim, { seq, hash: chain.records[seq]!.hash, publicKey });
  }
  t.equal(verifier.finish({ isTorn: false, endsAtHead: false }).status, 'verified');
});
