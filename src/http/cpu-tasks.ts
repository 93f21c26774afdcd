/** What a front thread gives to its CPU pool: functions of plain data, by name. */
import { verifyEd25519 } from './ed25519-proof.js';

/** What `verifyProof` is given, as plain data: key and signature in base64url. */
export interface VerifyProof {
  readonly publicKey: string;
  readonly message: string;
  readonly signature: string;
}

/** False for what is no key or no signature: the task itself never fails. */
export function verifyProof({ publicKey, message, signature }: VerifyProof): boolean {
  return verifyEd25519(publicKey, message, signature);
}
