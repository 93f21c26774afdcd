/** Typed functions with which the rest of the process asks the audit export. */
import { type ActorRef, askForValue } from '../../runtime/ask.js';
import type { SinkStatus } from './messages.js';

/** The name by which the actor is placed and asked. */
export const AUDIT_EXPORT_ACTOR = 'audit-export';

/** All reject with a `CodedError` of the runtime or of the store. */
export class AuditExportClient {
  constructor(private readonly ref: ActorRef) {}

  /** The sinks of this process's `--audit-sinks-file`, in its order. */
  sinks(): Promise<readonly SinkStatus[]> {
    return askForValue(this.ref, 'sinks', {});
  }
}
