/**
 * How to reach the database: what a URL may say, and when it must insist on a verified server.
 *
 * The URL is read here and not by pg, whose reading depends on environment variables and gives
 * `sslmode` other meanings than the database's own tools do. Nothing of a URL is ever repeated in
 * a message: it carries a password.
 */
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import type pg from 'pg';
import { DatabaseError } from './database-error.js';

/** How an operator says where the database is and how far its network is trusted. */
export interface DatabaseAccess {
  /** `postgres://user:password@host:port/database?sslmode=…`, from a file. */
  readonly url: string;
  /** Lets a URL to another host do without `sslmode=verify-full`. */
  readonly insecureTls?: boolean;
}

const DEFAULT_PORT = 5432;
const PORT_MAX = 65_535;
/** Time to connect, TLS and authentication included, or to get a connection of a pool. */
export const CONNECT_MAX_MS = 2_000;
/** Idle time before TCP asks whether the peer is still there. */
const KEEPALIVE_DELAY_MS = 10_000;

const PARAMETERS = new Set([
  'host',
  'port',
  'sslmode',
  'sslrootcert',
  'sslcert',
  'sslkey',
  'application_name',
  'options',
]);
/** What a connection without TLS would silently leave unread. */
const TLS_FILES = ['sslrootcert', 'sslcert', 'sslkey'];
const TLS_MODES = ['disable', 'require', 'verify-ca', 'verify-full'];

/** A user and no host, as for a socket's folder in `host=`: not a URL by the WHATWG's rules. */
const NO_HOST = /^(postgres(?:ql)?:\/\/[^/@?]*@)(?=[/?]|$)/;

/** What a URL says, parameter for parameter. */
interface Target {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
  readonly database: string;
  readonly parameters: ReadonlyMap<string, string>;
}

/**
 * Each statement has one right plan, by the index that its comment names. Planned once and for all,
 * and never a scan of a table that was small when the plan was made.
 */
const PLANNER_SETTINGS = ['plan_cache_mode=force_generic_plan', 'enable_seqscan=off', 'jit=off'];
/**
 * What an administrator may have set for the role or the database, and what statements outside a
 * unit of work would then fail of: two that meet on a row in a stricter isolation, a wait for one,
 * a connection that is closed under the next statement because it was idle. How long a statement
 * may take is the client's to say.
 */
const OWN_SETTINGS = [
  'default_transaction_isolation=read\\ committed',
  'lock_timeout=0',
  'statement_timeout=0',
  'idle_session_timeout=0',
];

/**
 * For connections that are ours alone: settings at their start, which a pooler does not pass on.
 * Behind one the statements are planned each time, for the tables as they are.
 */
export function directConfig(
  config: pg.ClientConfig,
  settings: readonly string[] = [],
): pg.ClientConfig {
  const own = [...PLANNER_SETTINGS, ...OWN_SETTINGS, ...settings].map((setting) => `-c ${setting}`);
  return { ...config, options: [config.options ?? '', ...own].join(' ').trim() };
}

/**
 * Everything pg needs, with nothing left to its environment variables but the password file. Throws
 * `database_tls_required` for a URL to a host that is not this machine and that does not say
 * `sslmode=verify-full`, unless `insecureTls`; `database_url_invalid` for what cannot be read.
 */
export function clientConfig(access: DatabaseAccess): pg.ClientConfig {
  const target = parseTarget(access.url);
  requireVerifiedServer(target, access.insecureTls ?? false);
  const options = target.parameters.get('options');
  return {
    host: target.host,
    port: target.port,
    user: target.user,
    database: target.database,
    ...(target.password === '' ? {} : { password: target.password }),
    ssl: tlsOptions(target),
    application_name: target.parameters.get('application_name') ?? 'halos',
    ...(options === undefined ? {} : { options }),
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEPALIVE_DELAY_MS,
    connectionTimeoutMillis: CONNECT_MAX_MS,
  };
}

function parseTarget(text: string): Target {
  let url: URL;
  try {
    url = new URL(text.trim().replace(NO_HOST, '$1localhost'));
  } catch {
    throw invalid('is not a URL');
  }
  if (url.protocol !== 'postgres:' && url.protocol !== 'postgresql:') {
    throw invalid('does not begin with postgres://');
  }
  // It ends a text in the protocol: what follows would be read as another setting.
  if (/%00|\0/.test(text)) throw invalid('has a NUL in it');
  const parameters = new Map<string, string>();
  for (const [name, value] of url.searchParams) {
    if (!PARAMETERS.has(name)) throw invalid(`has a parameter that is not supported: ${name}`);
    if (parameters.has(name)) throw invalid(`says ${name} twice`);
    parameters.set(name, value);
  }
  const host = parameters.get('host') ?? decode(url.hostname).replace(/^\[(.*)\]$/, '$1');
  if (host.includes(',')) throw invalid('names several hosts');
  const user = decode(url.username);
  if (user === '') throw invalid('names no user');
  return {
    host: host === '' ? 'localhost' : host,
    port: portOf(parameters.get('port') ?? url.port),
    user,
    password: decode(url.password),
    database: decode(url.pathname.slice(1)) || user,
    parameters,
  };
}

/** Node's connect throws for what is no port, where nobody would hear of it. */
function portOf(text: string): number {
  if (text === '') return DEFAULT_PORT;
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (port < 1 || port > PORT_MAX) throw invalid('names a port that is none');
  return port;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw invalid('has a stray percent sign: write it as %25');
  }
}

function requireVerifiedServer(target: Target, insecureTls: boolean): void {
  if (target.parameters.get('sslmode') === 'verify-full') return;
  if (insecureTls || isLoopback(target.host)) return;
  throw new DatabaseError(
    'database_tls_required',
    'The database URL names another host: it must say sslmode=verify-full ' +
      '(or start with --database-insecure-tls).',
  );
}

function isLoopback(host: string): boolean {
  if (host.startsWith('/') || host === 'localhost') return true;
  if (isIP(host) === 0) return false;
  return ipaddr.process(host).range() === 'loopback';
}

function tlsOptions({ host, parameters }: Target): NonNullable<pg.ClientConfig['ssl']> {
  const mode = parameters.get('sslmode') ?? 'disable';
  if (!TLS_MODES.includes(mode)) {
    throw invalid(`has an sslmode that is not supported; use one of ${TLS_MODES.join(', ')}`);
  }
  const forTls = TLS_FILES.find((name) => parameters.has(name));
  if (mode === 'disable' && forTls !== undefined) {
    throw invalid(`says ${forTls} but no sslmode that would use it`);
  }
  if (mode === 'disable' || host.startsWith('/')) return false;
  const root = parameters.get('sslrootcert');
  const [cert, key] = [parameters.get('sslcert'), parameters.get('sslkey')];
  if (mode === 'verify-ca' && root === undefined) throw invalid('needs sslrootcert');
  return {
    ...(root === undefined || root === 'system' ? {} : { ca: readFile('sslrootcert', root) }),
    ...(cert === undefined ? {} : { cert: readFile('sslcert', cert) }),
    ...(key === undefined ? {} : { key: readFile('sslkey', key) }),
    // Said outright, since NODE_TLS_REJECT_UNAUTHORIZED would change the default.
    rejectUnauthorized: mode !== 'require' || root !== undefined,
    ...(mode === 'verify-full' ? {} : { checkServerIdentity: () => undefined }),
  };
}

function readFile(name: string, path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw invalid(`names a file in ${name} that cannot be read (${code})`);
  }
}

function invalid(what: string): DatabaseError {
  return new DatabaseError('database_url_invalid', `The database URL ${what}.`);
}
