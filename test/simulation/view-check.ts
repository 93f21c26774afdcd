/**
 * Whether a replica's view of the devices is what the store held at the view's own cursor: all that
 * was written up to there and nothing else. Looked at whenever a replica answers, since a view that
 * went wrong may be right again a moment later.
 */
import { applyRecord, DEVICES_STREAM, DevicesState } from '../../src/actors/devices/state.js';
import type { StoredRecord } from '../../src/storage/store.js';

/** The parts of a stream actor that are looked at from outside, for want of a way in. */
export interface DevicesView {
  readonly state: DevicesState;
  readonly position:
    | { readonly cursors: Readonly<Record<string, { readonly id: number }>> }
    | undefined;
}

interface Written {
  readonly id: number;
  /** Of a device's record. */
  readonly digest: string | undefined;
  readonly unconfirmed: boolean;
}

/** Every record of the devices' stream, by its key and in order. */
export class DevicesLog {
  private readonly written = new Map<string, Written[]>();

  note(records: readonly StoredRecord[]): void {
    for (const record of records) {
      if (record.stream !== DEVICES_STREAM || record.key === null) continue;
      const alone = new DevicesState();
      applyRecord(alone, record);
      const [device] = [...alone.byId.values()];
      const known = this.written.get(record.key) ?? [];
      this.written.set(record.key, known);
      known.push({
        id: record.id,
        digest: device?.digest,
        unconfirmed: device?.unconfirmed ?? false,
      });
    }
  }

  /** What is wrong with the view, or undefined. */
  faultOf({ state, position }: DevicesView): string | undefined {
    if (position === undefined) return undefined;
    const cursor = position.cursors[DEVICES_STREAM]?.id ?? 0;
    for (const [key, records] of this.written) {
      const known = records.filter((record) => record.id <= cursor);
      // Between two pages of a catch-up, the newest may stand on a later page than the cursor.
      const passed = known.length < records.length ? [undefined, ...known] : [known.at(-1)];
      const [kind, id = ''] = key.split('/');
      const fits =
        kind === 'device'
          ? passed.some((record) => fitsDevice(record, state.byId.get(id)))
          : kind !== 'revoked' || state.revocations.has(id) === known.length > 0;
      if (!fits) return `its view of ${key} is not what the store held at ${cursor}`;
    }
    return undefined;
  }
}

function fitsDevice(
  expected: Written | undefined,
  seen: { readonly digest: string; readonly unconfirmed: boolean } | undefined,
): boolean {
  return expected?.digest === seen?.digest && expected?.unconfirmed === seen?.unconfirmed;
}
