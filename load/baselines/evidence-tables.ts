/**
 * What people would write instead: each event inserted in a transaction of its own, and each
 * record appended to the chain by whoever decides, under the lock of the head's row. Over `pg` with
 * named statements, on tables as Halos has them.
 */
import { readFileSync } from 'node:fs';
import pg from 'pg';
import { EMPTY_CHAIN, linkEvent, signRecord } from '../../src/evidence/chain.js';
import type { SigningKey } from '../../src/evidence/keyring.js';
import type { EvidenceEvent } from '../../src/storage/evidence-store.js';
import type { LoadDatabases } from '../databases.js';
import type { RunContext } from '../run-context.js';

const TABLES = `
  CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ref text COLLATE "C" NOT NULL UNIQUE,
    record text NOT NULL
  );
  CREATE TABLE chain (
    seq bigint PRIMARY KEY,
    ref text COLLATE "C" NOT NULL UNIQUE,
    prev_hash text COLLATE "C" NOT NULL UNIQUE,
    hash text COLLATE "C" NOT NULL UNIQUE,
    record text NOT NULL
  );
  CREATE TABLE head (seq bigint NOT NULL, hash text NOT NULL);
  INSERT INTO head VALUES (0, '${EMPTY_CHAIN.hash}')`;

/** The baselines on a database of their own. */
export interface EvidenceTables {
  /** One `INSERT`, which is a transaction. */
  insert(event: EvidenceEvent): Promise<void>;
  /** Locks the head, links and signs in this thread, inserts, moves the head. */
  append(event: EvidenceEvent): Promise<void>;
}

/** Both ends with the run. `connections`: as many as ask at once, so that nobody waits for one. */
export async function openEvidenceTables(
  context: RunContext,
  databases: LoadDatabases,
  key: SigningKey,
  connections: number,
  name: string,
): Promise<EvidenceTables> {
  const connectionString = readFileSync(await databases.create(name), 'utf8').trim();
  const pool = new pg.Pool({ connectionString, max: connections });
  // The server may end one that is idle, at the end of the run, before it has said good-bye.
  pool.on('error', () => undefined);
  context.onEnd(() => pool.end());
  await pool.query(TABLES);
  return {
    insert: async ({ ref, text }) => {
      const insert = 'INSERT INTO outbox (ref, record) VALUES ($1, $2)';
      await pool.query({ name: 'insert', text: insert, values: [ref, text] });
    },
    append: async ({ text }) => {
      const client = await pool.connect();
      try {
        await append(client, text, key);
      } finally {
        client.release();
      }
    },
  };
}

async function append(client: pg.PoolClient, text: string, key: SigningKey): Promise<void> {
  await client.query('BEGIN');
  const lock = 'SELECT seq, hash FROM head FOR UPDATE';
  const { rows } = await client.query<{ seq: string; hash: string }>({ name: 'lock', text: lock });
  const [row] = rows;
  if (row === undefined) throw new Error('The baseline has no head.');
  const chainedAt = new Date().toISOString();
  const head = { seq: Number(row.seq), hash: row.hash };
  const record = signRecord(linkEvent(head, text, { chainedAt, keyId: key.id }), key);
  await client.query({
    name: 'append',
    text: 'INSERT INTO chain VALUES ($1, $2, $3, $4, $5)',
    values: [record.seq, record.ref, record.prevHash, record.hash, record.text],
  });
  await client.query({
    name: 'move',
    text: 'UPDATE head SET seq = $1, hash = $2',
    values: [record.seq, record.hash],
  });
  await client.query('COMMIT');
}
