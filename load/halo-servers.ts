/** Starts the Halos server under test, one process per replica, with files of its own. */
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ServerProcess } from './server-process.js';

const SCRIPT = fileURLToPath(new URL('../src/cli/halo-server.js', import.meta.url));

/** Replicas migrate and start within seconds, also on a busy machine. */
export const READY_WITHIN_MS = 60_000;

export type HaloStorage =
  | { readonly backend: 'file'; readonly dataDir: string }
  | { readonly backend: 'postgres'; readonly databaseUrlFile: string };

export interface HaloSpec {
  readonly name: string;
  readonly directory: string;
  readonly storage: HaloStorage;
  readonly replicas: number;
  readonly extraArgs: readonly string[];
  /** Default: `READY_WITHIN_MS`. */
  readonly readyWithinMs?: number;
}

export interface HaloServers {
  readonly servers: readonly ServerProcess[];
  readonly adminToken: string;
}

/** All replicas share one admin token and one signing key, and start at the same time. */
export async function startHalo(spec: HaloSpec): Promise<HaloServers> {
  const adminToken = randomBytes(32).toString('hex');
  const tokenFile = join(spec.directory, `${spec.name}.tokens`);
  const keyFile = join(spec.directory, `${spec.name}.key`);
  writeFileSync(tokenFile, `load:${adminToken}\n`, { mode: 0o600 });
  writeFileSync(keyFile, newSigningKey(), { mode: 0o600 });
  const args = [
    'serve',
    ...['--listen', '127.0.0.1:0', '--metrics-listen', '127.0.0.1:0'],
    ...storageArgs(spec.storage),
    ...['--admin-token-file', tokenFile, '--signing-key-file', keyFile],
    ...['--log-level', 'info'],
    ...spec.extraArgs,
  ];
  const servers = await Promise.all(
    Array.from({ length: spec.replicas }, (_, index) =>
      ServerProcess.start({
        name: spec.replicas === 1 ? spec.name : `${spec.name}-${index + 1}`,
        script: SCRIPT,
        args,
        directory: spec.directory,
        readyWithinMs: spec.readyWithinMs ?? READY_WITHIN_MS,
      }),
    ),
  );
  return { servers, adminToken };
}

function storageArgs(storage: HaloStorage): string[] {
  if (storage.backend === 'file') return ['--data-dir', storage.dataDir];
  return ['--database-url-file', storage.databaseUrlFile, '--auto-migrate'];
}

function newSigningKey(): string {
  return generateKeyPairSync('ed25519').privateKey.export({
    type: 'pkcs8',
    format: 'pem',
  }) as string;
}
