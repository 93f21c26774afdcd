/** The chain of evidence, for auditors: by ref, page by page, and whole. */
import { array, boolean, optional, record, string, unknown } from 'superstruct';
import { adminParty } from '../../actors/act-kinds.js';
import type { AuditClient } from '../../actors/audit-chainer/client.js';
import type { AuditPage, EvidenceName } from '../../actors/audit-chainer/messages.js';
import type { Party } from '../../evidence/event.js';
import { KIND_CHARACTERS_MAX, KIND_PATTERN } from '../../evidence/format.js';
import type { ChainedRecord, FoundEvidence } from '../../storage/evidence-store.js';
import { HttpProblem } from '../problem-details.js';
import {
  type Answer,
  adminName,
  askingProblems,
  defineRoute,
  type Route,
  type RouteCaller,
} from '../route.js';
import { fields, integerBetween, integerOrNull, name, textLike, time } from '../schema.js';

const PAGE_LIMIT_MAX = 500;
const PAGE_LIMIT_DEFAULT = 100;
/** Of an answer with records: one may have 256 KiB, and five hundred of them 128 MiB. */
const PAGE_BYTES_MAX = 1024 * 1024;
/** Few round trips for ordinary records, and 17 MB of the largest. */
const EXPORT_PAGE_RECORDS = 64;
/** Each reads the whole chain: two at once on a thread leave it time for everybody else. */
const EXPORTS_MAX = 2;
/** A number of a record, written as digits and nothing else. */
const ALL_DIGITS = /^\d{1,16}$/;

const seq = (description: string): ReturnType<typeof integerBetween> =>
  integerBetween(0, Number.MAX_SAFE_INTEGER, description);
const recordShape = (): ReturnType<typeof record<string, unknown>> => record(string(), unknown());

function byRef(path: string, operationId: string): Route {
  return defineRoute({
    operationId,
    summary: 'What a ref, or the number of a record, leads to',
    method: 'GET',
    path,
    access: 'auditor',
    pathParameters: fields({
      ref: name('A ref; all digits are the number of a record.'),
    }),
    answers: [
      {
        status: 200,
        description: 'The record, or that it is durable and waits for its place in the chain.',
        body: fields({
          ref: name('The ref.'),
          seq: integerOrNull(0, 'The number of the record; null while it waits for one.'),
          pending: boolean(),
          record: optional(recordShape()),
        }),
      },
    ],
    problems: [...askingProblems('read'), 'evidence_unknown'],
    caching: 'no-store',
    handle: async ({ path: { ref } }, { audit }) => {
      const found = await audit.find(nameOf(ref));
      if (found === undefined) throw new HttpProblem('evidence_unknown');
      return { status: 200, body: foundBody(found) };
    },
  });
}

function nameOf(text: string): EvidenceName {
  if (!ALL_DIGITS.test(text)) return { ref: text };
  const number = Number(text);
  if (!Number.isSafeInteger(number)) throw new HttpProblem('evidence_unknown');
  return { seq: number };
}

function foundBody(found: FoundEvidence): object {
  if (found.pending) return { ref: found.event.ref, seq: null, pending: true };
  const { ref, seq } = found.record;
  const facts = JSON.stringify({ ref, seq, pending: false });
  return Buffer.from(`${facts.slice(0, -1)},"record":${recordText(found.record)}}`);
}

/** As it stands in the chain, byte for byte; of what is no JSON any more, that it is damaged. */
function recordText({ seq, ref, text }: ChainedRecord): string {
  try {
    JSON.parse(text);
    return text;
  } catch {
    return JSON.stringify({ seq, ref, damaged: true });
  }
}

const readAudit = defineRoute({
  operationId: 'readAudit',
  summary: 'The records of the chain in their order, or the newest of them, newest first',
  method: 'GET',
  path: '/api/v1/audit',
  access: 'auditor',
  query: fields({
    after: optional(seq('Records with a greater number; absent: from the first on.')),
    limit: optional(integerBetween(1, PAGE_LIMIT_MAX, 'Records on a page.', PAGE_LIMIT_DEFAULT)),
    kind: optional(
      textLike(KIND_PATTERN, 'a kind such as device.revoked', 'Only records of this kind.'),
    ),
    tail: optional(integerBetween(1, PAGE_LIMIT_MAX, 'So many of the newest, newest first.')),
  }),
  answers: [
    {
      status: 200,
      description: 'Records as they are in the chain. `verified` is what this replica has checked.',
      body: fields({
        items: array(recordShape()),
        next: optional(seq('What `after` of the next page is; absent at the end.')),
        head: fields({
          seq: integerBetween(-1, Number.MAX_SAFE_INTEGER, 'The newest record; -1: none yet.'),
          hash: string(),
        }),
        verified: fields({
          upTo: integerBetween(-1, Number.MAX_SAFE_INTEGER, 'All records up to this one.'),
        }),
      }),
    },
  ],
  problems: askingProblems('read'),
  caching: 'no-store',
  handle: async ({ query }, { audit }) => {
    const { after, limit = PAGE_LIMIT_DEFAULT, kind, tail } = query;
    const ofKind = kind === undefined ? {} : { kind };
    if ((kind?.length ?? 0) > KIND_CHARACTERS_MAX) throw wrongQuery('kind', 'a shorter kind');
    if (tail === undefined) {
      const page = await audit.page({ afterSeq: after ?? -1, limit, ...ofKind });
      return { status: 200, body: pageBody(page) };
    }
    for (const other of ['after', 'limit'] as const) {
      if (query[other] !== undefined) throw wrongQuery(other, 'left out beside tail');
    }
    const page = await audit.tail({ limit: tail, ...ofKind });
    return { status: 200, body: tailBody(page) };
  },
});

function wrongQuery(field: string, expected: string): HttpProblem {
  const errors = [{ in: 'query', pointer: `/${field}`, detail: `must be ${expected}` }] as const;
  const detail = `query /${field} must be ${expected}.`;
  return new HttpProblem('validation_failed', { detail, errors });
}

function pageBody(page: AuditPage): object {
  const records = fitting(page.records);
  const cutAfter = records.length < page.records.length ? records.at(-1)?.seq : undefined;
  const next = cutAfter ?? page.nextAfterSeq;
  return bodyOf(page, records, next === undefined ? {} : { next });
}

function tailBody(page: AuditPage): object {
  return bodyOf(page, fitting(page.records), {});
}

function bodyOf(page: AuditPage, records: readonly ChainedRecord[], more: object): Buffer {
  const facts = JSON.stringify({
    ...more,
    head: page.head,
    verified: { upTo: page.verifiedUpTo },
  });
  return Buffer.from(`{"items":[${records.map(recordText).join(',')}],${facts.slice(1)}`);
}

/** As many as an answer may hold, and at least one. */
function fitting(records: readonly ChainedRecord[]): readonly ChainedRecord[] {
  let bytes = 0;
  const end = records.findIndex(({ text }, index) => {
    bytes += text.length;
    return index > 0 && bytes > PAGE_BYTES_MAX;
  });
  return end === -1 ? records : records.slice(0, end);
}

/** Exports that are under way on this thread, whoever asked. */
const exporting = { count: 0 };

const exportAudit = defineRoute({
  operationId: 'exportAudit',
  summary: 'The whole chain as JSON lines, ending in a fresh checkpoint: for `halo-verify`',
  method: 'GET',
  path: '/api/v1/audit/export',
  access: 'auditor',
  answers: [
    {
      status: 200,
      description: 'A record on each line. Whatever does not end in a checkpoint was cut off.',
      mediaType: 'application/x-ndjson',
      body: string(),
    },
  ],
  problems: statementProblems(),
  caching: 'no-store',
  handle: ({ caller }, { audit }): Answer => ({
    status: 200,
    body: undefined,
    stream: {
      headers: {
        'content-type': 'application/x-ndjson',
        'content-disposition': 'attachment; filename="evidence.jsonl"',
      },
      pieces: exportLines(audit, partyOf(caller)),
    },
  }),
});

/** From the beginning to a checkpoint that is made for it: a head that does not move meanwhile. */
async function* exportLines(audit: AuditClient, by: Party): AsyncGenerator<Buffer> {
  if (exporting.count >= EXPORTS_MAX) {
    const detail = `${EXPORTS_MAX} exports are under way on this thread already.`;
    throw new HttpProblem('overloaded', { detail, retryAfterSeconds: 5 });
  }
  exporting.count += 1;
  try {
    const checkpoint = await audit.checkpoint({ by });
    let next = readOn(audit, -1);
    for (;;) {
      const records = await next;
      const last = records.at(-1);
      const isEnd = last === undefined || last.seq >= checkpoint.seq;
      if (!isEnd) next = readOn(audit, last.seq);
      const lines = records.filter(({ seq }) => seq <= checkpoint.seq).map(({ text }) => text);
      if (lines.length > 0) yield Buffer.from(`${lines.join('\n')}\n`, 'utf8');
      if (isEnd) return;
    }
  } finally {
    exporting.count -= 1;
  }
}

/** Asked for while the page before is still being sent; whoever stops early leaves it behind. */
function readOn(audit: AuditClient, afterSeq: number): Promise<readonly ChainedRecord[]> {
  const records = audit.records({ afterSeq, limit: EXPORT_PAGE_RECORDS });
  records.catch(() => undefined);
  return records;
}

const statedShape = fields({
  seq: seq('The number of the record.'),
  hash: name('The hash of the record.'),
  at: time('When.'),
  record: recordShape(),
});

const checkpoint = defineRoute({
  operationId: 'checkpointAudit',
  summary: 'State a checkpoint over everything that is chained now',
  method: 'POST',
  path: '/api/v1/audit/checkpoint',
  access: 'admin',
  body: { struct: fields({}), optional: true },
  answers: [{ status: 200, description: 'The record: keep it elsewhere.', body: statedShape }],
  problems: statementProblems(),
  caching: 'no-store',
  handle: async ({ caller }, { audit }) => stated(await audit.checkpoint({ by: partyOf(caller) })),
});

const rotateKey = defineRoute({
  operationId: 'rotateAuditKey',
  summary: 'Go on with another key of the signing key file, for which both keys sign',
  method: 'POST',
  path: '/api/v1/audit/rotate-key',
  access: 'admin',
  body: {
    struct: fields({
      nextKeyId: optional(
        textLike(
          /^[0-9a-f]{32}$/,
          'a key id of 32 hexadecimal digits',
          'The key to go on with; absent: the only other one in the file.',
        ),
      ),
    }),
    optional: true,
  },
  answers: [{ status: 200, description: 'The record that both signed.', body: statedShape }],
  problems: [...statementProblems(), 'evidence_invalid'],
  caching: 'no-store',
  handle: async ({ caller, body: { nextKeyId } }, { audit }) => {
    const next = nextKeyId === undefined ? {} : { nextKeyId };
    return stated(await audit.rotateKey({ by: partyOf(caller), ...next }));
  },
});

const acceptRestore = defineRoute({
  operationId: 'acceptAuditRestore',
  summary: 'Accept that a restore lost published records: a record names them',
  method: 'POST',
  path: '/api/v1/audit/accept-restore',
  access: 'admin',
  body: { struct: fields({}), optional: true },
  answers: [{ status: 200, description: 'The record that names them.', body: statedShape }],
  problems: [...statementProblems(), 'chain_not_rewound'],
  caching: 'no-store',
  handle: async ({ caller }, { audit }) =>
    stated(await audit.acceptRestore({ by: partyOf(caller) })),
});

function statementProblems(): ReturnType<typeof askingProblems> {
  return [...askingProblems('read'), 'outcome_unknown', 'chain_rewound', 'signing_key_missing'];
}

function partyOf(caller: RouteCaller): Party {
  return adminParty(adminName(caller));
}

function stated({ seq, hash, text }: ChainedRecord): Answer {
  const record = JSON.parse(text) as { readonly at: string };
  return { status: 200, body: { seq, hash, at: record.at, record } };
}

export const auditRoutes: readonly Route[] = [
  byRef('/v1/evidence/by-ref/{ref}', 'evidenceByRef'),
  byRef('/api/v1/evidence/by-ref/{ref}', 'evidenceByRefUnderApi'),
  readAudit,
  exportAudit,
  checkpoint,
  rotateKey,
  acceptRestore,
];
