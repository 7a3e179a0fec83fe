/* roles_entry.h - what the file of a job says of its roles, for its driver */
#ifndef MS_HEAD_JOBS_ROLES_ENTRY_H
#define MS_HEAD_JOBS_ROLES_ENTRY_H

#include "base/error.h"

struct ms_hosted;

/* What the file says of roles, for the driver; the key-value store has it. */
int ms_roles_entry_put(const struct ms_hosted *job, struct ms_error *err);
void ms_roles_entry_delete(const struct ms_hosted *job);

#endif
