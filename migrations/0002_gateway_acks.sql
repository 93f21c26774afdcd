-- min-binary-schema: 1
--
-- What gateways acknowledged, as each replica writes it once a second. Rows of a replica that died
-- expire by themselves. `replica_start` is the store's epoch, a dot, and a mark of the replica's
-- start: an acknowledgement of another epoch's version says nothing. Overwritten all the time.
CREATE TABLE halo_gateway_acks (
  gateway text COLLATE "C" NOT NULL,
  replica_start text COLLATE "C" NOT NULL,
  connections integer NOT NULL CHECK (connections >= 1),
  ack_version bigint NOT NULL CHECK (ack_version >= 0),
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (replica_start, gateway)
) WITH (fillfactor = 50);
