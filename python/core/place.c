/* The Head's methods for places: groups, and where clusters go. */
#include "head_object.h"

#include "base/cleanup.h"

#include <errno.h>
#include <string.h>

/* Ask; the operation has succeeded, or NULL with an exception set. */
static struct ms_head_op *
ask(struct head *h, const Muster__DriverToHead *m, PyObject *timeout)
{
    struct ms_head_op *op;

    if (!head_is_running(h))
        return NULL;
    op = ms_head_request(h->head, m);
    if (head_op_finish_coded(op, timeout) == 0)
        return op;
    ms_head_op_unref(op);
    return NULL;
}

/* ---- scopes ---------------------------------------------------------------------- */

struct scope {
    Muster__Scope message;
    char **names;
};

static void scope_free(struct scope *s)
{
    core_strings_free(s->names);
}

/* None, or (names, number of nodes, devices of each or -1). */
static int scope_parse(PyObject *tuple, struct scope *s)
{
    PyObject *names;
    int devices;

    muster__scope__init(&s->message);
    if (tuple == Py_None)
        return 0;
    if (!PyArg_ParseTuple(
            tuple, "O!Ii", &PyList_Type, &names, &s->message.num_nodes, &devices))
        return -1;
    s->message.is_limited = devices >= 0;
    s->message.devices_per_node = devices >= 0 ? (uint32_t)devices : 0;
    s->names = core_strings(names);
    if (!s->names)
        return -1;
    s->message.nodes = s->names;
    s->message.n_nodes = (size_t)PyList_Size(names);
    return 0;
}

/* ---- what is answered ------------------------------------------------------------ */

static PyObject *piece_tuple(const Muster__Piece *p)
{
    PyObject *devices = PyList_New((Py_ssize_t)p->n_devices);

    for (size_t i = 0; devices && i < p->n_devices; i++)
        PyList_SetItem(devices, (Py_ssize_t)i, PyLong_FromUnsignedLong(p->devices[i]));
    return devices ? Py_BuildValue("sN", p->node, devices) : NULL;
}

static PyObject *piece_list(Muster__Piece *const *pieces, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; list && i < count; i++) {
        PyObject *item = piece_tuple(pieces[i]);

        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* id, name, state, bundles, pieces, why, table, detached, clusters */
static PyObject *group_tuple(const Muster__GroupStatus *g)
{
    return Py_BuildValue("KsiINssNN",
                         (unsigned long long)g->id,
                         g->name,
                         (int)g->state,
                         (unsigned)g->bundles,
                         piece_list(g->pieces, g->n_pieces),
                         g->why,
                         g->table,
                         PyBool_FromLong(g->detached),
                         core_str_list(g->clusters, g->n_clusters));
}

static PyObject *take_group(struct ms_head_op *op)
{
    PyObject *group = NULL;

    if (op)
        group = group_tuple((const Muster__GroupStatus *)ms_head_op_message(op));
    ms_head_op_unref(op);
    return group;
}

/* ---- groups ---------------------------------------------------------------------- */

static struct ms_head_op *ask_bundles(struct head *h,
                                      Muster__PlaceGroup *group,
                                      PyObject *bundles,
                                      PyObject *timeout)
{
    MS_CLEANUP(head_bundles_free) struct head_bundles list = {0};
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    if (head_bundles_parse(bundles, &list, group) < 0)
        return NULL;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_PLACE_GROUP;
    m.place_group = group;
    return ask(h, &m, timeout);
}

PyObject *head_place_group(PyObject *self, PyObject *args)
{
    MS_CLEANUP(scope_free) struct scope scope = {0};
    Muster__PlaceGroup group = MUSTER__PLACE_GROUP__INIT;
    PyObject *bundles, *where, *timeout;
    double wait;
    int detached;

    if (!PyArg_ParseTuple(args,
                          "sO!ssdpOO",
                          &group.name,
                          &PyList_Type,
                          &bundles,
                          &group.strategy,
                          &group.same,
                          &wait,
                          &detached,
                          &where,
                          &timeout) ||
        scope_parse(where, &scope) < 0)
        return NULL;
    group.timeout_ns = wait > 0 ? (uint64_t)core_ns(wait) : 0;
    group.detached = detached;
    group.scope = where == Py_None ? NULL : &scope.message;
    return take_group(ask_bundles((struct head *)self, &group, bundles, timeout));
}

/* Of the group with this id, or name. */
static struct ms_head_op *
ask_group(PyObject *self, PyObject *args, Muster__DriverToHead__BodyCase body)
{
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    Muster__GroupRef ref = MUSTER__GROUP_REF__INIT;
    unsigned long long id;
    PyObject *timeout;

    if (!PyArg_ParseTuple(args, "KsO", &id, &ref.name, &timeout))
        return NULL;
    ref.id = id;
    m.body_case = body;
    m.find_group = &ref; /* the same place for all */
    return ask((struct head *)self, &m, timeout);
}

PyObject *head_wait_group(PyObject *self, PyObject *args)
{
    return take_group(ask_group(self, args, MUSTER__DRIVER_TO_HEAD__BODY_WAIT_GROUP));
}

PyObject *head_find_group(PyObject *self, PyObject *args)
{
    return take_group(ask_group(self, args, MUSTER__DRIVER_TO_HEAD__BODY_FIND_GROUP));
}

PyObject *head_remove_group(PyObject *self, PyObject *args)
{
    struct ms_head_op *op =
        ask_group(self, args, MUSTER__DRIVER_TO_HEAD__BODY_REMOVE_GROUP);

    if (!op)
        return NULL;
    ms_head_op_unref(op);
    Py_RETURN_NONE;
}

/* ---- what there is --------------------------------------------------------------- */

static PyObject *use_list(const Muster__Resources *m)
{
    PyObject *list = PyList_New((Py_ssize_t)m->n_nodes);

    for (size_t i = 0; list && i < m->n_nodes; i++) {
        const Muster__NodeUse *n = m->nodes[i];
        PyObject *item = Py_BuildValue("sKKKKIIN",
                                       n->name,
                                       (unsigned long long)n->cpu_milli,
                                       (unsigned long long)n->cpu_milli_held,
                                       (unsigned long long)n->memory,
                                       (unsigned long long)n->memory_held,
                                       (unsigned)n->devices,
                                       (unsigned)n->devices_free,
                                       PyBool_FromLong(n->gone));

        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *head_resources(PyObject *self, PyObject *args)
{
    MS_CLEANUP(scope_free) struct scope scope = {0};
    Muster__ResourcesRequest request = MUSTER__RESOURCES_REQUEST__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    PyObject *where, *timeout, *result = NULL;
    const Muster__Resources *found;
    struct ms_head_op *op;

    if (!PyArg_ParseTuple(args, "OO", &where, &timeout) ||
        scope_parse(where, &scope) < 0)
        return NULL;
    request.scope = &scope.message;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_RESOURCES;
    m.resources = &request;
    op = ask((struct head *)self, &m, timeout);
    if (op) {
        found = (const Muster__Resources *)ms_head_op_message(op);
        result = Py_BuildValue("Ns", use_list(found), found->table);
    }
    ms_head_op_unref(op);
    return result;
}
