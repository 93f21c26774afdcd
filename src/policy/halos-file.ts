/**
 * `halos.yaml`: what the operator says of resources and principals, whatever a caller says of them,
 * and whose the principals are. Unknown keys are refused: a slip must not become a hole.
 */
import { isMap, isScalar, isSeq, LineCounter, type Node, parseDocument, type YAMLMap } from 'yaml';
import type { Json, JsonObject } from '../evidence/canonical-json.js';
import type { PolicyFile, PolicyIssue } from './issue.js';

/** A thing that policies speak of. */
export interface EntityUid {
  readonly type: string;
  readonly id: string;
}

/** What `halos.yaml` says of one entity. */
export interface DeclaredEntity {
  readonly uid: EntityUid;
  readonly attrs: JsonObject;
  readonly parents: readonly EntityUid[];
  /** Whose it is; only of principals. */
  readonly owner?: { readonly user: string } | { readonly device: string };
  /** Where it stands. */
  readonly place: { readonly line: number; readonly column: number };
}

/** All that the file says. */
export interface HalosFile {
  readonly approvalTtlMs: number;
  readonly entities: readonly DeclaredEntity[];
}

export const HALOS_FILE = 'halos.yaml';
/** Long enough for a person to be asked, short enough that nobody redeems a forgotten yes. */
const APPROVAL_TTL_DEFAULT_MS = 3_600_000;
const APPROVAL_TTL_MIN_MS = 1_000;
const APPROVAL_TTL_MAX_MS = 7 * 86_400_000;
const TTL = /^(\d{1,9})(s|m|h|d)$/;
const MS_OF: Readonly<Record<string, number>> = {
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};
/** Entities that one file may declare: each decision looks some of them up. */
const ENTITIES_MAX = 10_000;
const NAME_CHARACTERS_MAX = 256;

/** Without the file. */
export const NO_HALOS_FILE: HalosFile = { approvalTtlMs: APPROVAL_TTL_DEFAULT_MS, entities: [] };

/** Reads the file; what is wrong is added to `issues`, and then the result means nothing. */
export function readHalosFile(file: PolicyFile, issues: PolicyIssue[]): HalosFile {
  return new Reader(file, issues).read();
}

class Reader {
  private readonly lines = new LineCounter();
  private readonly entities = new Map<string, DeclaredEntity>();
  private approvalTtlMs = APPROVAL_TTL_DEFAULT_MS;

  constructor(
    private readonly file: PolicyFile,
    private readonly issues: PolicyIssue[],
  ) {}

  read(): HalosFile {
    const { lines } = this;
    const document = parseDocument(this.file.text, { lineCounter: lines, uniqueKeys: true });
    for (const { message, pos } of document.errors)
      this.issue(pos[0], message.split('\n')[0] ?? '');
    if (document.errors.length > 0) return NO_HALOS_FILE;
    this.root(document.contents);
    return { approvalTtlMs: this.approvalTtlMs, entities: [...this.entities.values()] };
  }

  private root(node: unknown): void {
    if (node === null) return;
    this.each(node, {
      version: (value) => {
        if (!isScalar(value) || value.value !== 1) this.at(value, 'version must be 1');
      },
      approvals: (value) =>
        this.each(value, {
          ttl: (ttl) => {
            this.approvalTtlMs = this.ttl(ttl);
          },
        }),
      resources: (value) => this.list(value, false),
      principals: (value) => this.list(value, true),
    });
  }

  private ttl(node: unknown): number {
    const [, amount, unit = ''] = TTL.exec(this.text(node) ?? '') ?? [];
    const ms = Number(amount) * (MS_OF[unit] ?? Number.NaN);
    if (ms >= APPROVAL_TTL_MIN_MS && ms <= APPROVAL_TTL_MAX_MS) return ms;
    this.at(node, 'ttl must be a duration from 1s to 7d, such as 30m');
    return APPROVAL_TTL_DEFAULT_MS;
  }

  private list(node: unknown, mayHaveOwner: boolean): void {
    if (!isSeq(node)) {
      this.at(node, 'must be a list');
      return;
    }
    for (const item of node.items) this.entity(item, mayHaveOwner);
  }

  private entity(node: unknown, mayHaveOwner: boolean): void {
    let attrs: JsonObject = {};
    let parents: EntityUid[] = [];
    let owner: DeclaredEntity['owner'];
    const uid = this.uid(node, {
      attrs: (value) => {
        const json = isMap(value) ? (value.toJSON() as Json) : undefined;
        if (typeof json === 'object' && json !== null && !Array.isArray(json))
          attrs = json as JsonObject;
        else this.at(value, 'attrs must be a map');
      },
      parents: (value) => {
        if (isSeq(value))
          parents = value.items
            .map((item) => this.uid(item, {}))
            .filter((one) => one !== undefined);
        else this.at(value, 'parents must be a list of {type, id}');
      },
      ...(mayHaveOwner
        ? {
            owner: (value: unknown) => {
              owner = this.owner(value);
            },
          }
        : {}),
    });
    if (uid === undefined) return;
    const key = entityKey(uid);
    if (this.entities.has(key))
      this.at(node, `${uid.type}::${JSON.stringify(uid.id)} stands twice`);
    if (this.entities.size >= ENTITIES_MAX) {
      this.at(node, `more than ${ENTITIES_MAX} entities`);
      return;
    }
    const place = this.placeOf((node as Node | null)?.range?.[0] ?? 0);
    const entity = { uid, attrs, parents, place };
    this.entities.set(key, owner === undefined ? entity : { ...entity, owner });
  }

  private owner(node: unknown): DeclaredEntity['owner'] {
    let owner: DeclaredEntity['owner'];
    this.each(node, {
      user: (value) => {
        const user = this.text(value);
        if (user !== undefined) owner = { user: user.normalize('NFC').toLowerCase() };
      },
      device: (value) => {
        const device = this.text(value);
        if (device !== undefined) owner = { device };
      },
    });
    if (!isMap(node) || node.items.length !== 1)
      this.at(node, 'owner must be one user or one device');
    return owner;
  }

  private uid(
    node: unknown,
    others: Readonly<Record<string, (value: unknown) => void>>,
  ): EntityUid | undefined {
    let type: string | undefined;
    let id: string | undefined;
    this.each(node, {
      type: (value) => {
        type = this.text(value);
      },
      id: (value) => {
        id = this.text(value);
      },
      ...others,
    });
    if (type !== undefined && id !== undefined) return { type, id };
    this.at(node, 'an entity needs type and id');
    return undefined;
  }

  /** Hands over each value; an unknown key is an issue. */
  private each(node: unknown, known: Readonly<Record<string, (value: unknown) => void>>): void {
    if (!isMap(node)) {
      this.at(node, 'must be a map');
      return;
    }
    for (const { key, value } of (node as YAMLMap).items) {
      const name = isScalar(key) ? String(key.value) : '';
      if (Object.hasOwn(known, name)) known[name]?.(value);
      else this.at(key, `unknown key; known are ${Object.keys(known).join(', ')}`);
    }
  }

  private text(node: unknown): string | undefined {
    const value = isScalar(node) ? node.value : undefined;
    if (typeof value === 'string' && value !== '' && value.length <= NAME_CHARACTERS_MAX)
      return value;
    this.at(node, `must be a text of 1 to ${NAME_CHARACTERS_MAX} characters`);
    return undefined;
  }

  private at(node: unknown, message: string): void {
    this.issue((node as Node | null)?.range?.[0] ?? 0, message);
  }

  private issue(offset: number, message: string): void {
    const place = this.placeOf(offset);
    const file = this.file.name;
    this.issues.push({ severity: 'error', code: 'halos_invalid', file, ...place, message });
  }

  private placeOf(offset: number): DeclaredEntity['place'] {
    const { line, col } = this.lines.linePos(offset);
    return { line: Math.max(1, line), column: Math.max(1, col) };
  }
}

/** One name for an entity, for maps. */
export function entityKey({ type, id }: EntityUid): string {
  return `${type}::${JSON.stringify(id)}`;
}
