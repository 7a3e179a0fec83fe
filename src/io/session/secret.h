/* secret.h - the secret of a job, from a file
 *
 * 64 hexadecimal digits, with or without a newline, as the session's folder has it. The
 * file is ours or root's (a service manager hands it out so) and nobody else can read
 * it, or it is refused: what many can read proves nothing. No error shows what is in
 * it.
 */
#ifndef MS_IO_SESSION_SECRET_H
#define MS_IO_SESSION_SECRET_H

#include "base/error.h"

#include <stdint.h>

enum { MS_SECRET_FILE_SIZE = 32 };

/* Names a file in the environment; the secret itself never stands there. */
#define MS_SECRET_FILE_ENV "MUSTER_SECRET_FILE"

/* 0; -ENOENT and others (it cannot be read), -EPERM (others could), -EINVAL (it holds
 * something else). On failure `out` is unchanged. */
int ms_secret_read(const char *path,
                   uint8_t out[MS_SECRET_FILE_SIZE],
                   struct ms_error *err);

#endif
