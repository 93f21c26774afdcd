/**
 * Canonical JSON (RFC 8785) as the verifier makes it, on its own: the writer uses a library, and
 * `test/evidence-canonical.test.ts` compares the two.
 */

/** A value that has a canonical form. */
export type JsonValue = null | boolean | number | string | JsonValue[] | JsonMembers;

/** An object as it was parsed. */
export interface JsonMembers {
  [name: string]: JsonValue;
}

/**
 * The canonical text of a parsed value, or undefined when it has none: a number that is not finite,
 * a lone surrogate, or containers nested more than `depthMax` deep.
 */
export function canonicalForm(value: JsonValue, depthMax: number): string | undefined {
  switch (typeof value) {
    case 'string':
      return value.isWellFormed() ? JSON.stringify(value) : undefined;
    case 'number':
      // ECMAScript's own form of a double is the one of RFC 8785 §3.2.2.3; −0 is 0.
      return Number.isFinite(value) ? String(value) : undefined;
    case 'boolean':
      return String(value);
    default:
      break;
  }
  if (value === null) return 'null';
  if (depthMax === 0) return undefined;
  return Array.isArray(value) ? formOfArray(value, depthMax) : formOfObject(value, depthMax);
}

function formOfArray(items: readonly JsonValue[], depthMax: number): string | undefined {
  let text = '[';
  for (const [index, item] of items.entries()) {
    const form = canonicalForm(item, depthMax - 1);
    if (form === undefined) return undefined;
    text += index === 0 ? form : `,${form}`;
  }
  return `${text}]`;
}

function formOfObject(members: JsonMembers, depthMax: number): string | undefined {
  let text = '{';
  // The default order compares UTF-16 code units, as RFC 8785 §3.2.3 wants.
  for (const name of Object.keys(members).sort()) {
    const form = canonicalForm(members[name] ?? null, depthMax - 1);
    const label = canonicalForm(name, 1);
    if (form === undefined || label === undefined) return undefined;
    text += text.length === 1 ? `${label}:${form}` : `,${label}:${form}`;
  }
  return `${text}}`;
}
