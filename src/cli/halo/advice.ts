/** What a person can do about an answer, in the words of this command line. */

/** What advice may name. */
export interface AdviceFacts {
  readonly tokenFile: string;
}

/**
 * What to do about a problem, by its code; undefined where the server's own detail says more. It
 * takes the place of the detail, which for these codes repeats the title.
 */
export function problemAdvice(
  code: string | undefined,
  { tokenFile }: AdviceFacts,
): string | undefined {
  switch (code) {
    case 'token_unknown':
      return `${tokenFile} holds one of another server or kind; name another with --token-file`;
    case 'device_not_found':
      return '`halo devices` lists them';
    case 'gateway_not_found':
      return '`halo gateway list` lists them';
    case 'device_revoked':
      return 'that is for good; its user can enrol it anew';
    default:
      return undefined;
  }
}

/** What to do when a connection failed for this reason of the system's, or ''. */
export function connectionAdvice(reason: string): string {
  if (reason === 'ERR_SSL_WRONG_VERSION_NUMBER') return ': it speaks http, not https';
  if (reason === 'ECONNREFUSED') return ': is a server running there? Name another with --url';
  if (reason === 'ENOTFOUND') return ': there is no such host. Name another with --url';
  return '';
}
