/** What a front thread gives to its CPU pool: functions of plain data, by name. */
import { verifyEd25519 } from './ed25519-proof.js';

export interface VerifyProof {
  readonly publicKey: string;
  readonly message: string;
  readonly signature: string;
}

export function verifyProof({ publicKey, message, signature }: VerifyProof): boolean {
  return verifyEd25519(publicKey, message, signature);
}
