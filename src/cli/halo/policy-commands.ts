/** `halo policy check`: for the CI of a policy repository. Asks no server. */
import { readPolicyDirectory } from '../../actors/policy-directory.js';
import type { PolicyIssue } from '../../policy/issue.js';
import { acceptPolicy } from '../../policy/policy.js';
import { CodedError } from '../../runtime/failure.js';
import { parsePath } from '../option-values.js';
import type { CommandSpec, Shown } from './command.js';

const CHECK: CommandSpec = {
  usage: 'check <DIR>',
  description: 'whether a server would accept the policy in a directory; no server is asked',
  prepare: () => () => Promise.reject(new Error('this command asks no server')),
  offline: ({ words: [path = ''] }) => {
    const directory = parsePath('DIR', path);
    return () => checkPolicy(directory);
  },
};

/** In the order of the help. */
export const POLICY_COMMANDS: readonly CommandSpec[] = [CHECK];

async function checkPolicy(directory: string): Promise<Shown> {
  const files = await readPolicyDirectory(directory).catch((error: Error) => {
    throw new CodedError('policy_unreadable', error.message);
  });
  const { policy, digest, issues } = acceptPolicy(files);
  const accepted = policy !== undefined;
  const lines = issues.map(
    ({ severity, code, file, line, column, message }: PolicyIssue) =>
      `${file}:${line}:${column}: ${severity}: ${message} (${code})`,
  );
  const verdict = accepted
    ? `accepted: ${policy.policies} policies, digest ${digest}`
    : `refused: ${issues.filter(({ severity }) => severity === 'error').length} errors`;
  return {
    value: { accepted, digest, policies: policy?.policies ?? 0, issues },
    text: [...lines, verdict, ''].join('\n'),
    hasFailed: !accepted,
  };
}
