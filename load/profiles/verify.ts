/**
 * How fast `halo-verify` proves a chain, as the program that an auditor runs: beside as many
 * Ed25519 verifications and nothing else, on as many threads as the machine has cores.
 *
 * The raw rate is measured on all cores at once, just before: what a busy neighbour takes away, it
 * takes from both.
 */

import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { openCpuPool } from '../../src/runtime/cpu-pool.js';
import { CLAIM_BYTES, type SignatureBatch } from '../../src/verify/signatures.js';
import {
  ChainBuilder,
  exportOf,
  publicHexOf,
  TEST_KEYS,
} from '../../test/fixtures/evidence-chains.js';
import { runProgram } from '../../test/fixtures/verify-program.js';
import { nowMs } from '../open-loop.js';
import type { LoadOptions } from '../options.js';
import { type LoadReport, reportOf, verdict } from '../report.js';
import type { RunContext } from '../run-context.js';
import { median } from '../statistics.js';

/** What an auditor of a year has, and what the bound on memory is about. */
const RECORDS = 1_000_000;
/** For a first look: enough for the start of the program not to count. */
const RECORDS_QUICK = 50_000;
/** A run this short is a look and no measurement. */
const QUICK_BELOW_SECONDS = 5;
const PAGE_RECORDS = 1_000;
const RAW_BATCH = 512;
const RAW_BATCHES_PER_CORE = 40;
const SIGNATURE_BYTES = 64;
const RSS_MAX_MB = 300;

/** One round. */
interface Measured {
  readonly rawPerSecond: number;
  readonly found: number;
  readonly seconds: number;
  readonly ofRaw: number;
  readonly cpuUs: number;
  readonly rssMb: number;
}

export async function runVerify(options: LoadOptions, context: RunContext): Promise<LoadReport> {
  const records = options.durationSeconds < QUICK_BELOW_SECONDS ? RECORDS_QUICK : RECORDS;
  context.progress(`writing a chain of ${records} records`);
  const path = join(context.directory, 'chain.jsonl');
  await writeChain(path, records);
  const measured: Measured[] = [];
  for (let round = 0; round < options.rounds; round += 1) {
    context.progress(`round ${round + 1} of ${options.rounds}`);
    const rawPerSecond = await rawRate();
    const { exitCode, out, rssMb, cpuUs, seconds } = await runProgram(path);
    const found = exitCode === 0 ? (JSON.parse(out) as { records: number }).records : 0;
    const ofRaw = found / seconds / rawPerSecond;
    measured.push({ rawPerSecond, found, rssMb, cpuUs: cpuUs / found, ofRaw, seconds });
  }
  const of = (pick: (one: Measured) => number): number => median(measured.map(pick));
  const facts = {
    records,
    verifiedPerSecond: of(({ found, seconds }) => found / seconds),
    rawPerSecond: of(({ rawPerSecond }) => rawPerSecond),
    ofRaw: of(({ ofRaw }) => ofRaw),
    cpuUs: of(({ cpuUs }) => cpuUs),
    rssMb: Math.max(...measured.map(({ rssMb }) => rssMb)),
  };
  const verified = Math.min(...measured.map(({ found }) => found));
  return reportOf(options, context, undefined, {
    facts,
    verdicts: [
      verdict('records verified', verified, ['at least', records, ''], true),
      verdict('of raw Ed25519 on all cores', facts.ofRaw, ['at least', 0.8, ' times']),
      verdict('memory', facts.rssMb, ['below', RSS_MAX_MB, ' MB']),
    ],
  });
}

async function writeChain(path: string, records: number): Promise<void> {
  const file = createWriteStream(path);
  const chain = new ChainBuilder();
  for (let written = 0; written < records; ) {
    while (chain.records.length < PAGE_RECORDS) {
      chain.add('decision.made', { decision: 'allow', resource: `report/${written}` });
    }
    if (written + chain.records.length >= records) chain.checkpoint();
    const text = exportOf(chain.lines);
    written += chain.records.length;
    chain.forget();
    if (!file.write(text)) await once(file, 'drain');
  }
  file.end();
  await once(file, 'close');
}

/** Verifications a second on all cores together, in batches as the verifier hands them out. */
async function rawRate(): Promise<number> {
  const cores = availableParallelism();
  const pool = openCpuPool(new URL('../../src/verify/signatures.js', import.meta.url), cores);
  try {
    const batch = rawBatch();
    const check = (): Promise<number> => pool.run<number>('firstBadSignature', batch);
    await Promise.all(Array.from({ length: cores * 2 }, check));
    const startedMs = nowMs();
    const total = cores * RAW_BATCHES_PER_CORE;
    const bad = await Promise.all(Array.from({ length: total }, check));
    if (bad.some((index) => index !== -1)) throw new Error('A good signature was refused.');
    return (total * RAW_BATCH * 1000) / (nowMs() - startedMs);
  } finally {
    await pool.close();
  }
}

function rawBatch(): SignatureBatch {
  const [key] = TEST_KEYS;
  const claims = new Uint8Array(RAW_BATCH * CLAIM_BYTES);
  for (let index = 0; index < RAW_BATCH; index += 1) {
    const hash = Buffer.alloc(CLAIM_BYTES - SIGNATURE_BYTES, index);
    claims.set(hash, index * CLAIM_BYTES);
    claims.set(key.sign(hash), index * CLAIM_BYTES + hash.length);
  }
  return { publicKey: publicHexOf(key), claims, count: RAW_BATCH };
}
