/* rollout.h - what is handed out of a rollout, as Python objects */
#ifndef MS_PYTHON_ROLLOUT_H
#define MS_PYTHON_ROLLOUT_H

#include "core.h"

#include "rollout/rollout.h"

/* RolloutGroup of _core.pyi; takes the group. */
PyObject *core_rollout_group(struct ms_rollout_group *g);
PyObject *core_rollout_stats(struct ms_rollout *r);
PyObject *core_rollout_explanation(const struct ms_explanation *x, const char *text);
/* RolloutMark */
PyObject *core_rollout_mark(const struct ms_rollout_mark *m);

#endif
