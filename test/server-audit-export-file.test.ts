/** A server on files that forwards its chain to a file: torn lines, renamed files, archives. */
import {
  appendFileSync,
  existsSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { act } from './fixtures/chained-acts.js';
import { eventually, HaloServer, newInstallation } from './fixtures/halo-server.js';

t.setTimeout(120_000);
const upTo = (seq: number): number[] => Array.from({ length: seq + 1 }, (_, index) => index);

interface Site {
  readonly dataDir: string;
  /** Where the lines are appended. */
  readonly path: string;
  start(): Promise<HaloServer>;
}

function open(t: Test): Site {
  const installation = newInstallation();
  const folder = t.testdir();
  const dataDir = join(folder, 'data');
  const path = join(folder, 'audit.jsonl');
  const sinks = join(folder, 'sinks.yaml');
  writeFileSync(sinks, 'sinks:\n  - { name: archive, type: file, path: audit.jsonl }\n');
  return {
    dataDir,
    path,
    start: async () => {
      const options = ['--audit-sinks-file', sinks];
      const server = await HaloServer.start(installation, ['--data-dir', dataDir], options);
      t.teardown(() => server.stop('SIGKILL'));
      return server;
    },
  };
}

function lines(path: string): string[] {
  return existsSync(path) ? readFileSync(path, 'utf8').split('\n').slice(0, -1) : [];
}

function seqs(path: string): number[] {
  return lines(path).map((line) => (JSON.parse(line) as { seq: number }).seq);
}

async function allWritten(server: HaloServer): Promise<void> {
  const isThere = async (): Promise<boolean> => {
    const { json } = await server.admin('GET', '/api/v1/audit/sinks');
    return json.items[0].lagRecords === 0 && json.items[0].cursor > 0;
  };
  await eventually(isThere, 30_000, 'everything is in the file');
}

/** The chain as it is exported, without the checkpoint that the export adds. */
async function exported(server: HaloServer): Promise<string[]> {
  const { text } = await server.admin('GET', '/api/v1/audit/export');
  return text.split('\n').slice(0, -2);
}

t.test('the file has the chain, byte for byte, for its owner only', async (t) => {
  const site = open(t);
  const server = await site.start();
  await act(server, 20);
  await allWritten(server);
  const chain = await exported(server);
  t.strictSame(lines(site.path).slice(0, chain.length), chain);
  t.equal(statSync(site.path).mode & 0o777, 0o600);
  const { json } = await server.admin('GET', '/api/v1/audit/sinks');
  t.match(json.items[0], { name: 'archive', type: 'file', lastError: null });
  t.match(json.items[0].leader, /^rep_/, 'on files the process holds every lease');
});

t.test('a line that a crash tore is cut off, and nothing is lost', async (t) => {
  const site = open(t);
  const first = await site.start();
  await act(first, 10);
  await allWritten(first);
  await first.stop('SIGKILL');
  appendFileSync(site.path, (lines(site.path).at(-1) ?? '').slice(0, 100));
  const second = await site.start();
  await act(second, 10, 50);
  await allWritten(second);
  const all = seqs(site.path);
  t.strictSame(all, upTo(all.length - 1));
});

t.test('a file that is renamed is followed by a new one', async (t) => {
  const site = open(t);
  const server = await site.start();
  await act(server, 5);
  await allWritten(server);
  renameSync(site.path, `${site.path}.1`);
  await act(server, 5, 50);
  await allWritten(server);
  const all = [...seqs(`${site.path}.1`), ...seqs(site.path)];
  t.strictSame(all, upTo(all.length - 1));
  t.ok(seqs(site.path).length >= 5);
});
