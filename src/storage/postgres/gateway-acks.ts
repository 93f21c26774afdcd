/**
 * Which gateways each replica has connected and what they acknowledged. Index: the primary key for
 * one replica's rows; the table is read whole, since it has a row for each connected gateway.
 */
import type { GatewayAck, GatewayAckRow } from '../store.js';
import type { Connections, Statement } from './connections.js';
import { integer, text } from './row.js';

/** Touches one replica's rows only, so that no two replicas ever wait for each other. */
const RECORD: Statement = {
  name: 'halo_gateway_acks_record',
  text: `
    WITH gone AS (
      DELETE FROM halo_gateway_acks WHERE replica_start = $1 AND gateway <> ALL($2::text[]))
    INSERT INTO halo_gateway_acks (gateway, replica_start, connections, ack_version, expires_at)
    SELECT gateway, $1, connections, ack_version,
      clock_timestamp() + $5::float8 * interval '1 millisecond'
    FROM unnest($2::text[], $3::int4[], $4::int8[]) AS i (gateway, connections, ack_version)
    ORDER BY gateway
    ON CONFLICT (replica_start, gateway) DO UPDATE SET
      connections = excluded.connections,
      ack_version = excluded.ack_version,
      expires_at = excluded.expires_at`,
};

const LIST: Statement = {
  name: 'halo_gateway_acks_list',
  text: `
    SELECT gateway, replica_start, connections, ack_version,
      (date_part('epoch', expires_at) * 1000)::int8
    FROM halo_gateway_acks WHERE expires_at > clock_timestamp()
    ORDER BY replica_start, gateway`,
};

/** One statement, in which the gateways that are gone go too; see `Store.recordGatewayAcks`. */
export async function recordGatewayAcks(
  connections: Connections,
  replicaStart: string,
  acks: readonly GatewayAck[],
  ttlMs: number,
): Promise<void> {
  const columns = [
    acks.map(({ gateway }) => gateway),
    acks.map((ack) => ack.connections),
    acks.map(({ ackVersion }) => ackVersion),
  ];
  await connections.write(RECORD, [replicaStart, ...columns, ttlMs]);
}

/** The live rows of all replicas, judged on the database's clock. */
export async function listGatewayAcks(connections: Connections): Promise<GatewayAckRow[]> {
  const rows = await connections.read(LIST, []);
  return rows.map((row) => ({
    gateway: text(row, 0),
    replicaStart: text(row, 1),
    connections: integer(row, 2),
    ackVersion: integer(row, 3),
    expiresAtMs: integer(row, 4),
  }));
}
