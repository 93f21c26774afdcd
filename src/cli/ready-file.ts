/** The file that says a server can be used: whole from its first moment, gone at exit. */
import { rename, unlink, writeFile } from 'node:fs/promises';

/** What `--ready-file` holds (API.md "Commands"). */
export interface ReadyFacts {
  readonly pid: number;
  readonly url: string;
  readonly metricsUrl: string;
  readonly backend: 'file' | 'postgres';
}

/** Written under another name first: whoever waits for the file never reads half of it. */
export async function writeReadyFile(path: string, facts: ReadyFacts): Promise<void> {
  const draft = `${path}.${facts.pid}.new`;
  await writeFile(draft, `${JSON.stringify(facts)}\n`);
  await rename(draft, path);
}

/** Idempotent. */
export async function removeReadyFile(path: string): Promise<void> {
  await unlink(path).catch(() => undefined);
}
