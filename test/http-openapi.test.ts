/** The OpenAPI document is whole, true to the routes, and the answers are as it says. */
import { Struct } from 'superstruct';
import t, { type Test } from 'tap';
import { jsonSchemaOf } from '../src/http/json-schema.js';
import { openApiDocument } from '../src/http/openapi.js';
import { PROBLEMS } from '../src/http/problems.js';
import { problemsOf, type Route } from '../src/http/route.js';
import { deviceAuthentication } from '../src/http/routes/device-authentication.js';
import { ROUTES } from '../src/http/routes.js';
import { GOOD_BODIES, pathOf } from './fixtures/http-bodies.js';
import { call } from './fixtures/http-client.js';
import { ADMIN_TOKEN, CREDENTIAL, startFront } from './fixtures/http-front.js';

/** A document is walked by names that the tests know. */
type Json = any;

const SCHEMA_KEYWORDS = new Set([
  '$ref',
  'type',
  'properties',
  'required',
  'additionalProperties',
  'items',
  'enum',
  'pattern',
  'minLength',
  'maxLength',
  'minimum',
  'maximum',
  'default',
  'format',
  'description',
]);

/** A JSON Schema of the kinds that this document uses. */
function checkSchema(t: Test, schema: Json, where: string): void {
  for (const keyword of Object.keys(schema)) {
    t.ok(SCHEMA_KEYWORDS.has(keyword), `${where}: ${keyword} is a known keyword`);
  }
  if (schema.$ref !== undefined) {
    t.equal(schema.$ref, '#/components/schemas/Problem', where);
    return;
  }
  for (const type of [schema.type].flat())
    t.match(type, /^(null|object|array|string|integer|number|boolean)$/, where);
  for (const key of schema.required ?? []) t.ok(key in schema.properties, `${where}: ${key}`);
  for (const [key, property] of Object.entries(schema.properties ?? {})) {
    checkSchema(t, property, `${where}/${key}`);
  }
  if (schema.type === 'array') checkSchema(t, schema.items, `${where}/items`);
  if (schema.pattern !== undefined) t.doesNotThrow(() => new RegExp(schema.pattern, 'u'), where);
}

/** Whether a value fits a schema, as far as the document's keywords go. */
function fits(schema: Json, value: Json): boolean {
  if (Array.isArray(schema.type)) {
    return schema.type.some((type: string) => fits({ ...schema, type }, value));
  }
  switch (schema.type) {
    case 'null':
      return value === null;
    case 'object': {
      if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
      const known = schema.properties ?? {};
      return (
        (schema.required ?? []).every((key: string) => key in value) &&
        Object.entries(value).every(([key, held]) =>
          key in known ? fits(known[key], held) : schema.additionalProperties !== false,
        )
      );
    }
    case 'array':
      return Array.isArray(value) && value.every((item) => fits(schema.items, item));
    case 'string':
      return (
        typeof value === 'string' &&
        (schema.enum === undefined || schema.enum.includes(value)) &&
        [...value].length >= (schema.minLength ?? 0) &&
        [...value].length <= (schema.maxLength ?? Number.POSITIVE_INFINITY) &&
        (schema.format !== 'date-time' || !Number.isNaN(Date.parse(value)))
      );
    case 'integer':
      return Number.isInteger(value);
    case 'number':
      return typeof value === 'number';
    case 'boolean':
      return typeof value === 'boolean';
    default:
      return false;
  }
}

const document = openApiDocument(ROUTES, '1.2.3') as Json;

t.test('the document has the structure of OpenAPI 3.1', (t) => {
  t.match(document.openapi, /^3\.1\.\d+$/);
  t.match(document.info, { title: String, version: '1.2.3', license: { name: 'Apache-2.0' } });
  const operationIds = new Set<string>();
  for (const [path, item] of Object.entries<Json>(document.paths)) {
    t.match(path, /^\/[\w{}/.-]*$/, 'a path begins with a slash');
    for (const [method, operation] of Object.entries<Json>(item)) {
      t.match(method, /^(get|put|post|delete|options|head|patch)$/);
      t.notOk(operationIds.has(operation.operationId), `${operation.operationId} is there once`);
      operationIds.add(operation.operationId);
      t.type(operation.summary, 'string');
      const named = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
      const parameters: Json[] = operation.parameters ?? [];
      const inPath = parameters.filter((parameter) => parameter.in === 'path');
      t.same(
        inPath.map(({ name }) => name),
        named,
        `${path} declares its parameters`,
      );
      for (const parameter of parameters) {
        t.match(parameter.in, /^(path|query|header)$/);
        if (parameter.in === 'path') t.equal(parameter.required, true);
        checkSchema(t, parameter.schema, `${path} ${parameter.name}`);
      }
      for (const [status, response] of Object.entries<Json>(operation.responses)) {
        t.match(status, /^(?:101|[2-5]\d\d)$/);
        t.type(response.description, 'string', 'OpenAPI wants a description');
        for (const media of Object.values<Json>(response.content ?? {})) {
          checkSchema(t, media.schema, `${path} ${status}`);
        }
      }
      for (const security of operation.security.flatMap(Object.keys)) {
        t.ok(security in document.components.securitySchemes, security);
      }
    }
  }
  t.end();
});

t.test('every route and every code of it is there', (t) => {
  for (const route of ROUTES) {
    const operation = document.paths[route.path]?.[route.method.toLowerCase()];
    t.equal(operation?.operationId, route.operationId);
    const codes = Object.values<Json>(operation.responses)
      .flatMap((response) => response['x-halo-codes'] ?? [])
      .sort();
    t.same(codes, problemsOf(route), route.operationId);
    for (const { status } of route.answers) t.ok(operation.responses[status], `${status}`);
    for (const [status, response] of Object.entries<Json>(operation.responses)) {
      for (const code of response['x-halo-codes'] ?? []) {
        t.equal(PROBLEMS[code as keyof typeof PROBLEMS].status, Number(status), code);
      }
    }
    t.equal(operation.requestBody !== undefined, route.body !== undefined);
  }
  t.match(document.paths['/api/v1/kill-list/stream'].get, {
    security: [{ gateway: [] }],
    parameters: [{ name: 'since', in: 'query', required: false }],
    responses: { 101: { description: String }, 426: { 'x-halo-codes': ['upgrade_required'] } },
  });
  for (const path of ['/api/v1/auth/device', '/api/v1/auth/device/{path}']) {
    for (const method of ['get', 'head', 'post', 'put', 'patch', 'delete', 'options']) {
      const responses = document.paths[path][method].responses;
      const codes = Object.values<Json>(responses).flatMap((one) => one['x-halo-codes'] ?? []);
      t.same([...codes].sort(), [...deviceAuthentication.problems].sort(), `${method} ${path}`);
      t.ok('x-halo-user' in responses['200'].headers);
    }
  }
  const inTable = new Set(ROUTES.map(({ path }) => path));
  t.equal(Object.keys(document.paths).length, inTable.size + 2, 'and nothing else');
  t.end();
});

t.test('every code of the catalogue is one that some route can answer', (t) => {
  const answered = new Set([
    ...ROUTES.flatMap(problemsOf),
    ...deviceAuthentication.problems,
    // No route has them: they are what is answered where no route is.
    'route_unknown',
    'method_not_allowed',
  ]);
  t.same([...answered].sort(), Object.keys(PROBLEMS).sort());
  t.same(document.components.schemas.Problem.properties.code.enum, Object.keys(PROBLEMS).sort());
  t.end();
});

t.test('what is answered has the declared shape, as struct and as JSON Schema', async (t) => {
  const front = await startFront();
  t.teardown(() => front.close());
  const served = await call(front.url, 'GET', '/openapi.json');
  t.match(served.json, { openapi: /^3\.1/, info: { version: '0.0.0' } });
  t.same(served.json.paths, JSON.parse(JSON.stringify(document.paths)), 'the served one is it');
  const isJson = ({ answers }: Route): boolean => answers[0]?.mediaType === undefined;
  for (const route of ROUTES.filter(isJson)) {
    if (route.access === 'upgrading-gateway') continue;
    const body = GOOD_BODIES[route.operationId];
    const answer = await call(front.url, route.method, pathOf(route), {
      bearer: ADMIN_TOKEN,
      ...(body === undefined ? {} : { body }),
    });
    const declared = route.answers.find(({ status }) => status === answer.status);
    t.ok(declared, `${route.operationId} declares ${answer.status}: ${answer.text.slice(0, 99)}`);
    t.equal(declared?.body.is(answer.json), true, `${route.operationId} fits its struct`);
    const operation = document.paths[route.path][route.method.toLowerCase()];
    const { schema } = operation.responses[answer.status].content['application/json'];
    t.ok(fits(schema, answer.json), `${route.operationId} fits its schema`);
  }
  const allowed = await call(front.url, 'GET', '/api/v1/auth/device', { bearer: CREDENTIAL });
  t.ok(deviceAuthentication.answer.body.is(allowed.json));
  const problem = await call(front.url, 'GET', '/api/v1/devices?limit=0', { bearer: ADMIN_TOKEN });
  t.ok(fits(document.components.schemas.Problem, problem.json), 'a problem fits its schema');
});

t.test('a struct kind without a schema is an error and not a guess', (t) => {
  const odd = new Struct<unknown, unknown>({ type: 'odd', schema: null });
  t.throws(() => jsonSchemaOf(odd), /odd/);
  t.end();
});
