/** JSON Schema out of superstruct structs, for OpenAPI. A kind it does not know is an error. */
import type { Struct } from 'superstruct';
import type { JsonSchema, Leaf } from './schema.js';

type Shape = Readonly<Record<string, Struct<unknown, unknown>>>;

/** Throws an Error naming the kind, so that no route is documented by a guess. */
export function jsonSchemaOf(struct: Struct<unknown, unknown>): JsonSchema {
  const json = schemaOf(struct);
  const { type } = json;
  return typeof type === 'string' && struct.is(null) ? { ...json, type: [type, 'null'] } : json;
}

function schemaOf(struct: Struct<unknown, unknown>): JsonSchema {
  if (isLeaf(struct.schema)) return struct.schema.json;
  switch (struct.type) {
    case 'object':
      return objectSchema(struct.schema as Shape, false);
    case 'type':
      return objectSchema(struct.schema as Shape, true);
    case 'array':
      return { type: 'array', items: jsonSchemaOf(struct.schema as Struct<unknown, unknown>) };
    case 'enums':
      return { type: 'string', enum: Object.keys(struct.schema as object) };
    case 'string':
      return { type: 'string' };
    case 'boolean':
      return { type: 'boolean' };
    case 'record':
      return { type: 'object' };
    default:
      throw new Error(`no JSON Schema is known for the struct kind ${struct.type}`);
  }
}

/** Whether a field may be absent. */
export function isOptional(struct: Struct<unknown, unknown>): boolean {
  return struct.is(undefined);
}

function objectSchema(shape: Shape, open: boolean): JsonSchema {
  const entries = Object.entries(shape);
  const required = entries.filter(([, struct]) => !isOptional(struct)).map(([key]) => key);
  return {
    type: 'object',
    properties: Object.fromEntries(entries.map(([key, struct]) => [key, jsonSchemaOf(struct)])),
    ...(required.length === 0 ? {} : { required }),
    additionalProperties: open,
  };
}

function isLeaf(schema: unknown): schema is Leaf {
  return typeof schema === 'object' && schema !== null && 'json' in schema && 'expected' in schema;
}
