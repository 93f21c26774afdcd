/**
 * A witness inside the throw-away database: a trigger that writes down each term that began while
 * another had time left. No look from outside is as close. The replicas know nothing of it.
 */
import type { TestDatabase } from '../fixtures/postgres-database.js';

const INSTALL = `
  CREATE SCHEMA halo_chaos;
  CREATE TABLE halo_chaos.early_terms (
    n bigserial PRIMARY KEY, lease text, token bigint, earlier bigint, left_ms float8);
  CREATE FUNCTION halo_chaos.note_early_term() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
      IF OLD.token <> NEW.token AND OLD.expires_at > clock_timestamp() THEN
        INSERT INTO halo_chaos.early_terms (lease, token, earlier, left_ms) VALUES
          (NEW.name, NEW.token, OLD.token,
            date_part('epoch', OLD.expires_at - clock_timestamp()) * 1000);
      END IF;
      RETURN NULL;
    END $$;
  CREATE TRIGGER halo_chaos_early_term AFTER UPDATE ON halo_leases
    FOR EACH ROW EXECUTE FUNCTION halo_chaos.note_early_term()`;

/** In a database that no replica has come to yet, or while they run. */
export async function installWitness(database: TestDatabase): Promise<void> {
  await database.sql(INSTALL);
}

/** The first term that began early; undefined: none did. */
export async function earlyTermFault(database: TestDatabase): Promise<string | undefined> {
  const [row] = await database.sql('SELECT * FROM halo_chaos.early_terms ORDER BY n LIMIT 1');
  if (row === undefined) return undefined;
  const { lease, token, earlier, left_ms: leftMs } = row;
  return `${lease}: ${token} began when ${earlier} had ${Math.round(Number(leftMs))} ms left`;
}
