/** The Node adapter of comlink ships types that nodenext cannot resolve: declared here, once. */
declare module 'comlink/dist/esm/node-adapter.mjs' {
  import type { MessagePort, Worker } from 'node:worker_threads';
  import type { Endpoint } from 'comlink';
  export default function nodeEndpoint(port: MessagePort | Worker): Endpoint;
}
