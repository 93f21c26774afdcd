/** How long a client waits before it connects again: grows, is spread by chance, has an end. */
import type { Random } from '../runtime/random.js';

/** The first pause: far below what an operator notices, far above what hurts a server. */
export const PAUSE_MIN_MS = 250;
/** The longest: a server that comes back has all its gateways within this. */
export const PAUSE_MAX_MS = 15_000;
/** A token that is refused is tried again so rarely that it counts as no attack. */
export const REFUSED_PAUSE_MS = 60_000;
/** What a server may ask a client to wait at most: longer is a mistake or an attack. */
const ASKED_MAX_MS = 60_000;
/** A connection that held for so long ends the growth: a heartbeat's period. */
export const STABLE_MS = 5_000;

/** One for each client. */
export class ReconnectPause {
  private failures = 0;

  constructor(private readonly random: Random) {}

  /** A connection ended after so long. */
  ended(connectedMs: number): void {
    this.failures = connectedMs >= STABLE_MS ? 0 : this.failures + 1;
  }

  /** From half of the pause to all of it, or what the server asked for and a little more. */
  nextMs(ask: { readonly refused?: boolean; readonly serverAskedMs?: number } = {}): number {
    const spread = 0.5 + this.random.fraction() / 2;
    if (ask.refused === true) return REFUSED_PAUSE_MS * (0.5 + spread);
    const grown = PAUSE_MIN_MS * 2 ** Math.min(16, Math.max(0, this.failures - 1));
    const ownMs = Math.min(PAUSE_MAX_MS, grown) * spread;
    if (ask.serverAskedMs === undefined) return ownMs;
    return Math.max(0, Math.min(ASKED_MAX_MS, ask.serverAskedMs)) + PAUSE_MIN_MS * spread;
  }
}
