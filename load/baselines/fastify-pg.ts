/**
 * What people would write: Fastify, and for each request one query for the SHA-256 of its
 * credential, over a pool of 16 connections. Without a logger, so that it is not made to look slow.
 *
 *   node fastify-pg.js --ready-file FILE --database-url-file FILE
 *
 * The database has `devices(digest text primary key, id text, "user" text)`.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import Fastify, { type FastifyInstance } from 'fastify';
import pg from 'pg';
import { announceReady, baselineOptions } from './baseline-process.js';

/** As many connections as Halos may open by default (`--database-max-conns`). */
const POOL_MAX = 16;

interface DeviceRow {
  readonly id: string;
  readonly user: string;
}

function build(pool: pg.Pool): FastifyInstance {
  const app = Fastify({ logger: false });
  app.all('/api/v1/auth/device', async (request, reply) => {
    const [scheme, credential] = (request.headers.authorization ?? '').split(' ');
    if (scheme !== 'Bearer' || credential === undefined) {
      return reply.code(401).send({ code: 'credential_missing' });
    }
    const digest = createHash('sha256').update(credential).digest('base64url');
    const { rows } = await pool.query<DeviceRow>(
      'SELECT id, "user" FROM devices WHERE digest = $1',
      [digest],
    );
    const row = rows[0];
    if (row === undefined) return reply.code(401).send({ code: 'device_unknown' });
    return reply
      .header('x-halo-device', row.id)
      .header('x-halo-user', row.user)
      .send({ device: { id: row.id, user: row.user } });
  });
  return app;
}

const options = baselineOptions(['database-url-file']);
const pool = new pg.Pool({
  connectionString: readFileSync(options['database-url-file'], 'utf8').trim(),
  max: POOL_MAX,
});
// A pool without this listener turns an idle connection's end into an uncaught exception.
pool.on('error', () => undefined);
const app = build(pool);
process.once('SIGTERM', () => {
  void app
    .close()
    .then(() => pool.end())
    .then(() => process.exit(0));
});
announceReady(options['ready-file'], await app.listen({ host: '127.0.0.1', port: 0 }));
