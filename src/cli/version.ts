/** The version of this binary, from the package it was installed as. */
import { readFileSync } from 'node:fs';

/** Semantic version, such as `0.1.0`. */
export function packageVersion(): string {
  const manifest = new URL('../../../package.json', import.meta.url);
  const { version } = JSON.parse(readFileSync(manifest, 'utf8')) as { version: string };
  return version;
}
