/** The policy engine, for this folder alone. */
import cedar from '@cedar-policy/cedar-wasm/nodejs';
import { inlineNoWasmCalls } from '../runtime/wasm-calls.js';

inlineNoWasmCalls();

export { cedar };
