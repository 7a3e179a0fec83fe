/* The Head's methods for places: groups, and where clusters go. */
#include "head_object.h"

#include "base/cleanup.h"
#include "resource/mapping.h"

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

/* ---- clusters -------------------------------------------------------------------- */

static int devices_parse(PyObject *list, uint32_t **out, size_t *count)
{
    Py_ssize_t n = PySequence_Size(list);

    if (n < 0)
        return -1;
    *out = calloc((size_t)n + 1, sizeof **out);
    if (!*out) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(list, i);
        unsigned long id = item ? PyLong_AsUnsignedLong(item) : 0;

        Py_XDECREF(item);
        if (PyErr_Occurred())
            return -1;
        if (id > MS_MAPPING_ID_MAX) {
            PyErr_Format(PyExc_ValueError, "device_mapping: %lu is no device", id);
            return -1;
        }
        (*out)[i] = (uint32_t)id;
    }
    *count = (size_t)n;
    return 0;
}

struct seats {
    Muster__Seat *at, **list;
};

static void seats_free(struct seats *s)
{
    free(s->at);
    free(s->list);
}

/* A list of (group, bundle). */
static int seats_parse(PyObject *list, struct seats *s, Muster__PlaceCluster *m)
{
    size_t n = (size_t)PyList_Size(list);

    s->at = calloc(n + 1, sizeof *s->at);
    s->list = calloc(n + 1, sizeof(Muster__Seat *));
    if (!s->at || !s->list) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned long long group;

        muster__seat__init(&s->at[i]);
        if (!PyArg_ParseTuple(
                PyList_GetItem(list, (Py_ssize_t)i), "KI", &group, &s->at[i].bundle))
            return -1;
        s->at[i].group = group;
        s->list[i] = &s->at[i];
    }
    m->seats = s->list;
    m->n_seats = n;
    return 0;
}

static PyObject *rank_list(const Muster__ClusterPlaced *m)
{
    PyObject *list = PyList_New((Py_ssize_t)m->n_ranks);

    for (size_t i = 0; list && i < m->n_ranks; i++) {
        PyObject *item = piece_list(m->ranks[i]->pieces, m->ranks[i]->n_pieces);

        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *head_place_cluster(PyObject *self, PyObject *args)
{
    MS_CLEANUP(scope_free) struct scope scope = {0};
    MS_CLEANUP(seats_free) struct seats seats = {0};
    MS_CLEANUP(ms_cleanup_free) uint32_t *devices = NULL;
    Muster__PlaceCluster place = MUSTER__PLACE_CLUSTER__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    PyObject *where, *ids, *list, *timeout, *result = NULL;
    unsigned long long cpu_milli, memory, device_memory;
    struct ms_head_op *op;

    if (!PyArg_ParseTuple(args,
                          "sOIOIKKKO!O",
                          &place.name,
                          &where,
                          &place.world_size,
                          &ids,
                          &place.devices_per_worker,
                          &cpu_milli,
                          &memory,
                          &device_memory,
                          &PyList_Type,
                          &list,
                          &timeout) ||
        scope_parse(where, &scope) < 0 || seats_parse(list, &seats, &place) < 0 ||
        devices_parse(ids, &devices, &place.n_devices) < 0)
        return NULL;
    place.scope = &scope.message;
    place.devices = devices;
    place.cpu_milli = cpu_milli;
    place.memory = memory;
    place.device_memory = device_memory;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_PLACE_CLUSTER;
    m.place_cluster = &place;
    op = ask((struct head *)self, &m, timeout);
    if (op)
        result = rank_list((const Muster__ClusterPlaced *)ms_head_op_message(op));
    ms_head_op_unref(op);
    return result;
}

PyObject *head_drop_claim(PyObject *self, PyObject *args)
{
    Muster__DropClaim drop = MUSTER__DROP_CLAIM__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    struct ms_head_op *op;
    PyObject *timeout;

    if (!PyArg_ParseTuple(args, "sO", &drop.cluster, &timeout))
        return NULL;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_DROP_CLAIM;
    m.drop_claim = &drop;
    op = ask((struct head *)self, &m, timeout);
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
