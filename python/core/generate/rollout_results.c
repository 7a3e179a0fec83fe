/* rollout_results.c - groups, numbers and the timeline of a rollout as Python objects */
#include "core/generate/rollout.h"

#include <math.h>

/* ---- types ------------------------------------------------------------------------- */

static PyStructSequence_Field sample_fields[] = {
    {"tokens", NULL},
    {"logprobs", "None: the engine gave none"},
    {"versions", "of the weights, one for each token"},
    {"finish_reason", NULL},
    {"replica", "-1: none"},
    {"attempt", NULL},
    {"seq", NULL},
    {"rid", NULL},
    {"failure", "empty: none"},
    {"is_done", "it belongs to the group"},
    {NULL, NULL}};

static PyStructSequence_Field group_fields[] = {
    {"id", NULL},
    {"key", NULL},
    {"why", "it was dropped; None: it is whole"},
    {"samples", NULL},
    {NULL, NULL}};

static PyStructSequence_Field mark_fields[] = {{"at_ns", NULL},
                                               {"name", "of the event or decision"},
                                               {"is_decision", NULL},
                                               {"request", NULL},
                                               {"group", NULL},
                                               {"seq", NULL},
                                               {"replica", "-1: none"},
                                               {"attempt", NULL},
                                               {"tokens", NULL},
                                               {"version", NULL},
                                               {"why", "a group was dropped, or None"},
                                               {NULL, NULL}};

enum { SAMPLE, GROUP, MARK, TYPES };

#define FIELDS(f) .fields = (f), .n_in_sequence = (int)MS_COUNT(f) - 1
static PyStructSequence_Desc descriptions[TYPES] = {
    [SAMPLE] = {.name = "muster._core.RolloutSample", FIELDS(sample_fields)},
    [GROUP] = {.name = "muster._core.RolloutGroup", FIELDS(group_fields)},
    [MARK] = {.name = "muster._core.RolloutMark", FIELDS(mark_fields)},
};
#undef FIELDS

static PyTypeObject *types[TYPES];

int core_rollout_setup(PyObject *module)
{
    for (int i = 0; i < TYPES; i++) {
        types[i] = PyStructSequence_NewType(&descriptions[i]);
        if (!types[i] || PyModule_AddType(module, types[i]) < 0)
            return -1;
    }
    return 0;
}

/* Of the values of its fields, a tuple, which it takes; NULL where that is. */
static PyObject *named(int type, PyObject *values)
{
    MS_CLEANUP(core_unref) PyObject *taken = values;

    return taken ? PyObject_CallFunctionObjArgs((PyObject *)types[type], taken, NULL)
                 : NULL;
}

/* ---- groups ------------------------------------------------------------------------ */

static PyObject *tokens_list(const struct ms_rollout_sample *s)
{
    PyObject *list = PyList_New((Py_ssize_t)s->count);

    for (size_t i = 0; list && i < s->count; i++) {
        PyObject *n = PyLong_FromLong(s->tokens[i]);

        if (!n || PyList_SetItem(list, (Py_ssize_t)i, n) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *logprobs_list(const struct ms_rollout_sample *s)
{
    PyObject *list;

    if (!s->logprobs)
        Py_RETURN_NONE;
    list = PyList_New((Py_ssize_t)s->count);
    for (size_t i = 0; list && i < s->count; i++) {
        PyObject *n = PyFloat_FromDouble((double)s->logprobs[i]);

        if (!n || PyList_SetItem(list, (Py_ssize_t)i, n) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *versions_list(const struct ms_rollout_sample *s)
{
    PyObject *list = PyList_New((Py_ssize_t)s->count);
    size_t at = 0;

    for (size_t k = 0; list && k < s->run_count; k++)
        for (uint32_t i = 0; list && i < s->runs[k].tokens && at < s->count; i++) {
            PyObject *n = PyLong_FromUnsignedLong(s->runs[k].version);

            if (!n || PyList_SetItem(list, (Py_ssize_t)at++, n) < 0)
                Py_CLEAR(list);
        }
    return list;
}

static PyObject *sample_object(const struct ms_rollout_sample *s)
{
    MS_CLEANUP(core_unref) PyObject *tokens = tokens_list(s);
    MS_CLEANUP(core_unref) PyObject *logprobs = tokens ? logprobs_list(s) : NULL;
    MS_CLEANUP(core_unref) PyObject *versions = logprobs ? versions_list(s) : NULL;
    MS_CLEANUP(core_unref) PyObject *failure = versions ? core_text(s->failure) : NULL;
    MS_CLEANUP(core_unref) PyObject *reason = failure ? core_text(s->reason) : NULL;

    if (!reason)
        return NULL;
    return named(SAMPLE,
                 Py_BuildValue("(OOOOliIsOO)",
                               tokens,
                               logprobs,
                               versions,
                               reason,
                               s->replica == MS_NOWHERE ? -1L : (long)s->replica,
                               (int)s->attempt,
                               (unsigned)s->seq,
                               s->rid,
                               failure,
                               s->is_done ? Py_True : Py_False));
}

static PyObject *samples_list(const struct ms_rollout_group *g)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < g->count; i++)
        if ((g->samples[i].is_done || g->why != MS_WHY_NONE) &&
            !core_append(list, sample_object(&g->samples[i])))
            Py_CLEAR(list);
    return list;
}

PyObject *core_rollout_group(struct ms_rollout_group *g)
{
    MS_CLEANUP(core_unref) PyObject *samples = samples_list(g);
    PyObject *out = NULL;

    if (samples)
        out = named(GROUP,
                    Py_BuildValue("(KKzO)",
                                  (unsigned long long)g->id,
                                  (unsigned long long)g->key,
                                  g->why ? ms_generate_why_name(g->why) : NULL,
                                  samples));
    ms_rollout_group_free(g);
    return out;
}

/* ---- numbers ----------------------------------------------------------------------- */

static PyObject *replica_dict(const struct ms_rollout_replica_stats *s)
{
    MS_CLEANUP(core_unref) PyObject *failure = core_text(s->failure);

    if (!failure)
        return NULL;
    return Py_BuildValue("{sIsssIsIsIsIsKsO}",
                         "replica",
                         s->replica,
                         "state",
                         ms_rollout_state_name(s->state),
                         "slots",
                         s->slots,
                         "version",
                         s->version,
                         "epoch",
                         s->epoch,
                         "running",
                         s->running,
                         "tokens",
                         (unsigned long long)s->tokens,
                         "failure",
                         s->failure[0] ? failure : Py_None);
}

static PyObject *replicas_list(struct ms_rollout *r)
{
    struct ms_rollout_replica_stats s;
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && ms_rollout_replica_stats(r, i, &s); i++)
        if (s.state != MS_ROLLOUT_FREE && !core_append(list, replica_dict(&s)))
            Py_CLEAR(list);
    return list;
}

static PyObject *history_dict(const struct ms_rollout_saves *s)
{
    MS_CLEANUP(core_unref) PyObject *error = core_text(s->error);

    if (!error)
        return NULL;
    return Py_BuildValue("{sKsKsO}",
                         "saves",
                         (unsigned long long)s->saves,
                         "failures",
                         (unsigned long long)s->failures,
                         "error",
                         s->error[0] ? error : Py_None);
}

PyObject *core_rollout_stats(struct ms_rollout *r)
{
    MS_CLEANUP(core_unref) PyObject *replicas = NULL, *history = NULL;
    struct ms_rollout_stats s;

    ms_rollout_stats(r, &s);
    replicas = replicas_list(r);
    history = replicas ? history_dict(&s.saves) : NULL;
    if (!history)
        return NULL;
#define COUNT(name) #name, (unsigned long long)s.core.name
    return Py_BuildValue(
        "{sKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsIsdsdsdsOsO}",
        "submitted",
        (unsigned long long)s.submitted,
        "sessions",
        (unsigned long long)s.sessions,
        COUNT(live),
        COUNT(queued),
        COUNT(running),
        COUNT(aborting),
        COUNT(sent),
        COUNT(resumed),
        COUNT(moved),
        COUNT(yielded),
        COUNT(late),
        COUNT(groups),
        COUNT(held),
        COUNT(ready),
        COUNT(leased),
        COUNT(delivered),
        COUNT(dropped),
        COUNT(failed),
        COUNT(stale),
        COUNT(filtered),
        COUNT(tokens),
        COUNT(surplus_tokens),
        "surplus_held",
        (unsigned long long)s.partials.held,
        "surplus_kept",
        (unsigned long long)s.partials.kept,
        "surplus_resumed",
        (unsigned long long)s.partials.resumed,
        "version",
        s.version,
        "bias",
        s.bias,
        "missed",
        s.core.missed,
        "correlation",
        s.correlation,
        "history",
        history,
        "replicas",
        replicas);
#undef COUNT
}

PyObject *core_rollout_explanation(const struct ms_explanation *x, const char *text)
{
    return Py_BuildValue("{sssssssIsisIsIsIsIsdsdsdsIsIsKsKss}",
                         "text",
                         text,
                         "state",
                         ms_explain_state_name(x->state),
                         "placed",
                         ms_explain_placed_name(x->placed),
                         "attempt",
                         x->attempt,
                         "replica",
                         x->replica == MS_NOWHERE ? -1 : (int)x->replica,
                         "failures",
                         x->failures,
                         "prompt_tokens",
                         x->prompt,
                         "generated",
                         x->generated,
                         "max_new_tokens",
                         x->max_new,
                         "expected",
                         x->expected,
                         "high",
                         x->high,
                         "history",
                         x->history,
                         "siblings_ended",
                         x->siblings_ended,
                         "siblings_live",
                         x->siblings_live,
                         "queued",
                         (unsigned long long)x->queued,
                         "ahead",
                         (unsigned long long)x->ahead,
                         "policy",
                         x->policy);
}

/* ---- the timeline ------------------------------------------------------------------ */

static const char *const event_names[MS_GENERATE_WHATS] = {
    [MS_SUBMIT] = "submit",
    [MS_CANCEL_GROUP] = "cancel_group",
    [MS_CANCEL] = "cancel",
    [MS_CANCEL_ALL] = "cancel_all",
    [MS_REPLICA_UP] = "replica_up",
    [MS_REPLICA_DOWN] = "replica_down",
    [MS_DRAIN] = "drain",
    [MS_CHUNK] = "chunk",
    [MS_FINISHED] = "finished",
    [MS_ABORTED] = "aborted",
    [MS_FAILED] = "failed",
    [MS_ALIVE] = "alive",
    [MS_WEIGHTS] = "weights",
    [MS_WEIGHTS_READY] = "weights_ready",
    [MS_WEIGHTS_FAILED] = "weights_failed",
    [MS_ADVANCE] = "advance",
    [MS_VERDICT] = "verdict",
    [MS_PULL] = "pull",
    [MS_CONSUMED] = "consumed",
    [MS_RETURNED] = "returned",
    [MS_PAUSE] = "pause",
    [MS_RESUME] = "resume",
    [MS_TAKE] = "take",
};

static const char *const decision_names[] = {
    [MS_SEND] = "send",
    [MS_ABORT] = "abort",
    [MS_PROBE] = "probe",
    [MS_EVICT] = "evict",
    [MS_RELEASED] = "released",
    [MS_UPDATE] = "update",
    [MS_UPDATED] = "updated",
    [MS_READY] = "ready",
    [MS_DELIVER] = "deliver",
    [MS_BATCH] = "batch",
    [MS_DROP] = "drop",
    [MS_REFILL] = "refill",
};

static const char *mark_name(const struct ms_rollout_mark *m)
{
    size_t count = m->is_decision ? MS_COUNT(decision_names) : MS_COUNT(event_names);
    const char *const *names = m->is_decision ? decision_names : event_names;

    return m->what < count && names[m->what] ? names[m->what] : "other";
}

PyObject *core_rollout_mark(const struct ms_rollout_mark *m)
{
    return named(MARK,
                 Py_BuildValue("(LsOKKIlIIIz)",
                               (long long)m->at_ns,
                               mark_name(m),
                               m->is_decision ? Py_True : Py_False,
                               (unsigned long long)m->request,
                               (unsigned long long)m->group,
                               (unsigned)m->seq,
                               m->replica == MS_NOWHERE ? -1L : (long)m->replica,
                               m->attempt,
                               m->tokens,
                               m->version,
                               m->why ? ms_generate_why_name(m->why) : NULL));
}
