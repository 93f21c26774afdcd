/** Finds the route of a method and a path, and says which methods a path has. */
import type { Route } from './route.js';

/** A path that exists. */
export interface Matched {
  /** Undefined when the path has other methods only. */
  readonly route: Route | undefined;
  /** Still percent-encoded. */
  readonly parameters: Readonly<Record<string, string>>;
  /** The path's methods, for `Allow`. */
  readonly allow: string;
  /** The path's template, for logs and metrics. */
  readonly template: string;
}

interface Template {
  readonly text: string;
  readonly segments: readonly string[];
  readonly methods: Map<string, Route>;
}

/** Made once from the table; throws when two routes want one method and path. */
export class Router {
  private readonly templates: readonly Template[];

  constructor(routes: readonly Route[]) {
    const templates = new Map<string, Template>();
    for (const route of routes) {
      const template: Template = templates.get(route.path) ?? {
        text: route.path,
        segments: route.path.split('/'),
        methods: new Map(),
      };
      if (template.methods.has(route.method)) {
        throw new Error(`two routes for ${route.method} ${route.path}`);
      }
      template.methods.set(route.method, route);
      templates.set(route.path, template);
    }
    // Literal segments win over parameters, whatever the order of the table.
    this.templates = [...templates.values()].sort(
      (a, b) => parameterCount(a.segments) - parameterCount(b.segments),
    );
  }

  /** `method` in upper case; HEAD is answered by GET's route. */
  match(method: string, path: string): Matched | undefined {
    const segments = path.split('/');
    for (const template of this.templates) {
      const parameters = matchSegments(template.segments, segments);
      if (parameters === undefined) continue;
      return {
        route: template.methods.get(method === 'HEAD' ? 'GET' : method),
        parameters,
        allow: allowOf(template),
        template: template.text,
      };
    }
    return undefined;
  }
}

/** The parameter's name of a template's segment such as `{id}`. */
export function parameterOf(segment: string): string | undefined {
  return segment.startsWith('{') && segment.endsWith('}') ? segment.slice(1, -1) : undefined;
}

function matchSegments(
  template: readonly string[],
  path: readonly string[],
): Record<string, string> | undefined {
  if (template.length !== path.length) return undefined;
  const parameters: Record<string, string> = {};
  for (const [index, segment] of template.entries()) {
    const part = path[index] ?? '';
    const parameter = parameterOf(segment);
    if (parameter === undefined) {
      if (segment !== part) return undefined;
    } else if (part === '') {
      return undefined;
    } else {
      parameters[parameter] = part;
    }
  }
  return parameters;
}

function parameterCount(segments: readonly string[]): number {
  return segments.filter((segment) => parameterOf(segment) !== undefined).length;
}

function allowOf(template: Template): string {
  const methods = [...template.methods.keys()];
  return methods.flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method])).join(', ');
}
