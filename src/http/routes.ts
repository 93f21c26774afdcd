/**
 * The route table. What is not in it is not served: the router, validation, OpenAPI and the
 * catalogue of each route's problems all come from here. `device-authentication.ts` serves the one
 * path that is not asked through handlers.
 */
import type { Route } from './route.js';
import { auditRoutes } from './routes/audit.js';
import { auditSinkRoutes } from './routes/audit-sinks.js';
import { decisionRoutes } from './routes/decisions.js';
import { deviceRoutes } from './routes/devices.js';
import { enrollmentRoutes } from './routes/enrollment.js';
import { gatewayRoutes } from './routes/gateways.js';
import { killListRoutes } from './routes/kill-list.js';
import { killListStreamRoutes } from './routes/kill-list-stream.js';
import { leaseRoutes } from './routes/leases.js';
import { operationRoutes } from './routes/operations.js';

export const ROUTES: readonly Route[] = [
  ...enrollmentRoutes,
  ...deviceRoutes,
  ...killListRoutes,
  ...killListStreamRoutes,
  ...gatewayRoutes,
  ...decisionRoutes,
  ...auditRoutes,
  ...auditSinkRoutes,
  ...leaseRoutes,
  ...operationRoutes,
];
