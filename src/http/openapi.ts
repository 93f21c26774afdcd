/** The interface as OpenAPI 3.1, made from the route table and the error catalogue. */
import type { Struct } from 'superstruct';
import { IDEMPOTENCY_KEY_LENGTH_MAX } from './idempotency.js';
import { isOptional, jsonSchemaOf } from './json-schema.js';
import { PROBLEM_MEDIA_TYPE } from './problem-details.js';
import { PROBLEMS, type ProblemCode } from './problems.js';
import { type Access, problemsOf, type Route } from './route.js';
import { deviceAuthentication } from './routes/device-authentication.js';

type Json = { readonly [key: string]: unknown };

/** `version` is the server's. */
export function openApiDocument(routes: readonly Route[], version: string): Json {
  const paths: Record<string, Record<string, Json>> = {};
  for (const route of routes) {
    const item = paths[route.path] ?? {};
    item[route.method.toLowerCase()] = operation(route);
    paths[route.path] = item;
  }
  for (const [path, suffix] of AUTHENTICATION_PATHS) paths[path] = authentication(path, suffix);
  return {
    openapi: '3.1.0',
    info: {
      title: 'Halos',
      version,
      description: 'The control plane of a fleet of AI agents.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    paths,
    components: {
      schemas: { Problem: problemSchema() },
      securitySchemes: {
        admin: { type: 'http', scheme: 'bearer', description: 'An administrator’s token.' },
        device: { type: 'http', scheme: 'bearer', description: 'A device’s credential.' },
        gateway: { type: 'http', scheme: 'bearer', description: 'A gateway’s token.' },
      },
    },
  };
}

function operation(route: Route): Json {
  const parameters = [
    ...parametersOf('path', route.pathParameters),
    ...parametersOf('query', route.query),
    ...(route.method === 'GET' ? [] : [IDEMPOTENCY_KEY]),
  ];
  const answers = route.answers.map(({ status, description, body, mediaType }): [string, Json] => [
    String(status),
    { description, content: { [mediaType ?? 'application/json']: { schema: jsonSchemaOf(body) } } },
  ]);
  return {
    operationId: route.operationId,
    summary: route.summary,
    security: SECURITY[route.access],
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(route.body === undefined
      ? {}
      : {
          requestBody: {
            required: !route.body.optional,
            content: { 'application/json': { schema: jsonSchemaOf(route.body.struct) } },
          },
        }),
    responses: {
      ...Object.fromEntries(answers),
      ...(route.access === 'upgrading-gateway'
        ? { 101: { description: 'The connection is a WebSocket now.' } }
        : {}),
      ...(route.caching === 'entity-tag'
        ? { 304: { description: 'As `If-None-Match` says.' } }
        : {}),
      ...problemResponses(problemsOf(route)),
    },
  };
}

const SECURITY: Readonly<Record<Access, readonly Json[]>> = {
  none: [],
  'enrollment-token': [],
  admin: [{ admin: [] }],
  viewer: [{ admin: [] }],
  auditor: [{ admin: [] }],
  'device-or-admin': [{ device: [] }, { admin: [] }],
  'gateway-or-viewer': [{ gateway: [] }, { admin: [] }],
  'decision-asker': [{ gateway: [] }, { device: [] }, { admin: [] }],
  approver: [{ admin: [] }],
  'upgrading-gateway': [{ gateway: [] }],
};

const IDEMPOTENCY_KEY: Json = {
  name: 'Idempotency-Key',
  in: 'header',
  required: false,
  description: 'Makes a retry safe: the same key, the same answer, for 24 hours.',
  schema: {
    type: 'string',
    minLength: 1,
    maxLength: IDEMPOTENCY_KEY_LENGTH_MAX,
    pattern: '^[!-~]+$',
  },
};

function parametersOf(
  place: 'path' | 'query',
  struct: Struct<unknown, unknown> | undefined,
): Json[] {
  if (struct === undefined) return [];
  const shape = struct.schema as Readonly<Record<string, Struct<unknown, unknown>>>;
  return Object.entries(shape).map(([name, field]) => ({
    name,
    in: place,
    required: !isOptional(field),
    schema: jsonSchemaOf(field),
  }));
}

/** One response for each status, naming the codes that come with it. */
function problemResponses(codes: readonly ProblemCode[]): Record<string, Json> {
  const byStatus = new Map<number, ProblemCode[]>();
  for (const code of codes) {
    const { status } = PROBLEMS[code];
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  return Object.fromEntries(
    [...byStatus].map(([status, together]) => [
      String(status),
      {
        description: together.map((code) => `\`${code}\`: ${PROBLEMS[code].title}.`).join(' '),
        'x-halo-codes': together,
        content: { [PROBLEM_MEDIA_TYPE]: { schema: { $ref: '#/components/schemas/Problem' } } },
      },
    ]),
  );
}

function problemSchema(): Json {
  const text = { type: 'string' };
  return {
    type: 'object',
    description: 'Problem details (RFC 9457).',
    properties: {
      type: { type: 'string', format: 'uri-reference' },
      title: text,
      status: { type: 'integer' },
      detail: text,
      code: { type: 'string', enum: Object.keys(PROBLEMS).sort() },
      requestId: text,
      retryable: { type: 'boolean', description: 'Whether the same request can succeed later.' },
      retryAfterSeconds: { type: 'number' },
      errors: {
        type: 'array',
        items: {
          type: 'object',
          properties: {
            in: { type: 'string', enum: ['body', 'path', 'query', 'header'] },
            pointer: { type: 'string', description: 'JSON pointer (RFC 6901).' },
            detail: text,
          },
          required: ['in', 'pointer', 'detail'],
        },
      },
      reasons: { type: 'array', items: text },
    },
    required: ['type', 'title', 'status', 'code', 'requestId', 'retryable'],
  };
}

const AUTHENTICATION_PATHS = [
  ['/api/v1/auth/device', ''],
  ['/api/v1/auth/device/{path}', 'Below'],
] as const;
const ANY_METHOD = ['get', 'head', 'post', 'put', 'patch', 'delete', 'options'] as const;

function authentication(path: string, suffix: string): Record<string, Json> {
  const { operationId, summary, answer, headers, problems } = deviceAuthentication;
  const below = path.endsWith('{path}');
  return Object.fromEntries(
    ANY_METHOD.map((method) => [
      method,
      {
        operationId: `${operationId}${suffix}By${method[0]?.toUpperCase()}${method.slice(1)}`,
        summary,
        security: [{ device: [] }],
        ...(below
          ? {
              parameters: [
                {
                  name: 'path',
                  in: 'path',
                  required: true,
                  description: 'The original path; may have slashes; ignored.',
                  schema: { type: 'string' },
                },
              ],
            }
          : {}),
        responses: {
          [String(answer.status)]: {
            description: answer.description,
            headers: Object.fromEntries(
              Object.entries(headers).map(([name, description]) => [
                name,
                { description, schema: { type: 'string' } },
              ]),
            ),
            content: { 'application/json': { schema: jsonSchemaOf(answer.body as never) } },
          },
          ...problemResponses(problems),
        },
      },
    ]),
  );
}
