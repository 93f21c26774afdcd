/** How V8 calls into WebAssembly. */
import { setFlagsFromString } from 'node:v8';

/**
 * Has no call into WebAssembly inlined from now on, in the whole process. V8 as it is in Node 20
 * ends the process ("unreachable code" in `DoComputeBuiltinContinuation`) when it takes such an
 * inlining back: after some twenty thousand decisions of a busy server, each time. Idempotent.
 */
export function inlineNoWasmCalls(): void {
  setFlagsFromString('--no-turbo-inline-js-wasm-calls');
}
