/** Typed functions with which the rest of the process asks the audit chainer. */
import { type ActorRef, askForValue } from '../../runtime/ask.js';
import type { ChainedRecord, FoundEvidence } from '../../storage/evidence-store.js';
import type {
  AuditPage,
  AuditReads,
  AuditStatement,
  AuditWrites,
  EvidenceName,
  ReadAudit,
  ReadRecords,
  RotateKey,
  TailAudit,
} from './messages.js';

/** The name by which the actor is placed and asked. */
export const AUDIT_CHAINER_ACTOR = 'audit-chainer';

type Kinds = AuditReads & AuditWrites;

/** All reject with a `CodedError`. */
export class AuditClient {
  constructor(private readonly ref: ActorRef) {}

  /** A record or a waiting event; undefined for a name that leads to nothing. */
  async find(name: EvidenceName): Promise<FoundEvidence | undefined> {
    return (await this.value('find', name)) ?? undefined;
  }

  page(input: ReadAudit): Promise<AuditPage> {
    return this.value('page', input);
  }

  /** The records after a number, in their order: for whoever reads all of them. */
  records(input: ReadRecords): Promise<readonly ChainedRecord[]> {
    return this.value('records', input);
  }

  tail(input: TailAudit): Promise<AuditPage> {
    return this.value('tail', input);
  }

  /** A checkpoint over everything that is chained now; what leaves with it binds this replica. */
  checkpoint(input: AuditStatement): Promise<ChainedRecord> {
    return this.value('checkpoint', input);
  }

  rotateKey(input: RotateKey): Promise<ChainedRecord> {
    return this.value('rotateKey', input);
  }

  acceptRestore(input: AuditStatement): Promise<ChainedRecord> {
    return this.value('acceptRestore', input);
  }

  private value<Kind extends keyof Kinds>(
    kind: Kind,
    payload: Kinds[Kind]['payload'],
  ): Promise<Kinds[Kind]['answer']> {
    return askForValue(this.ref, kind, payload);
  }
}
