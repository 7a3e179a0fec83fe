/* find.h - which head a driver means, and the file with its secret
 *
 *   address                secret_file             the head
 *   "local"                (means nothing)         one of the driver's own
 *   "auto"                 NULL: the head's own    the one of this machine and user
 *   "HOST:PORT,..."        NULL: as for "auto"     that one
 *
 * An address that is not given is MUSTER_ADDRESS, else "local"; a file that is not given is
 * MUSTER_SECRET_FILE.
 */
#ifndef MS_SESSION_FIND_H
#define MS_SESSION_FIND_H

#include "base/error.h"

/* Of the driver's own head both are NULL; else both are there. */
struct ms_found_head {
    char *address, *secret_file;
};

/* 0; -ENOENT: no head runs here that could be meant; -ENOTUNIQ: several do; -ENOMEM, and what
 * ms_session_list has. */
int ms_find_head(const char *address,
                 const char *secret_file,
                 struct ms_found_head *out,
                 struct ms_error *err);
void ms_found_head_finish(struct ms_found_head *f);

#endif
