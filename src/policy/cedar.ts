/**
 * The policy engine, for this folder alone. V8 as it is in Node 20 ends the process ("unreachable
 * code" in `DoComputeBuiltinContinuation`) when it has inlined a call into WebAssembly and takes
 * that back, after some twenty thousand decisions of a busy server: no call is inlined any more.
 * Who needs that speed elsewhere has other code to call.
 */
import { setFlagsFromString } from 'node:v8';
import cedar from '@cedar-policy/cedar-wasm/nodejs';

setFlagsFromString('--no-turbo-inline-js-wasm-calls');

export { cedar };
