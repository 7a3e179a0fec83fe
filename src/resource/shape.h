/* shape.h - what a node has, as a message
 *
 * A NodeShape says how many CPUs, how much memory, which devices, resources by name and
 * labels a node has: as its agent found it, or as the user has described it. The message
 * owns all that is in it; the functions below copy what they are given and check it. Pure.
 */
#ifndef MS_RESOURCE_SHAPE_H
#define MS_RESOURCE_SHAPE_H

#include "base/buf.h"
#include "proto/muster.pb-c.h"
#include "resource/stock.h"

/* An empty one: the CPUs are to be looked for (-1), and so is the memory (0). NULL: out of
 * memory. */
Muster__NodeShape *ms_shape_create(const char *name);
/* 0 or -ENOMEM */
int ms_shape_set_name(Muster__NodeShape *s, const char *name);
void ms_shape_destroy(Muster__NodeShape *s); /* NULL is nothing */
Muster__NodeShape *ms_shape_copy(const Muster__NodeShape *s);
void ms_shape_cleanup(Muster__NodeShape **s);

/* Devices that are alike. */
struct ms_shape_devices {
    const char *kind;   /* NULL: "gpu" */
    const char *vendor; /* NULL: they are only described */
    uint32_t count;
    uint64_t memory;     /* of each */
    uint32_t domain;     /* of the first ones */
    uint32_t per_domain; /* so many are in one domain, then the next begins; 0: all */
};

/* 0, or -EINVAL, -EEXIST, -E2BIG, -ENOMEM: nothing has changed but after -ENOMEM. */
int ms_shape_add_devices(Muster__NodeShape *s,
                         const struct ms_shape_devices *d,
                         struct ms_error *err);
/* A copy of this one; an empty `variable` becomes that of its vendor or kind, an empty `id`
 * its number among those of the same variable. */
int ms_shape_add_device(Muster__NodeShape *s,
                        const Muster__Device *like,
                        struct ms_error *err);
int ms_shape_add_resource(Muster__NodeShape *s,
                          const char *name,
                          uint64_t amount,
                          struct ms_error *err);
int ms_shape_add_label(Muster__NodeShape *s,
                       const char *name,
                       const char *value,
                       struct ms_error *err);
/* "name=value" */
int ms_shape_add_label_text(Muster__NodeShape *s,
                            const char *text,
                            struct ms_error *err);

/* The variable by which processes are told which devices they may see. A vendor that is
 * not known, or "", is passed over for the kind: what its usual vendor reads. */
const char *ms_device_variable(const char *kind, const char *vendor);
/* Whether it is such a variable, of any vendor that is known. `name` has `len` bytes. */
bool ms_is_device_variable(const char *name, size_t len);

/* What it has of CPUs; 0 if that is to be looked for. */
uint64_t ms_shape_cpu_milli(const Muster__NodeShape *s);
/* Give devices, resources and labels to a node of the stock that has none. 0, or a negative
 * errno as ms_stock_add_devices and so on have it. */
int ms_stock_describe(struct ms_stock *stock,
                      size_t node,
                      const Muster__NodeShape *s,
                      bool skip_bad_labels,
                      struct ms_error *err);
/* A new node of the stock; its index, or a negative errno: -EEXIST, or as ms_stock_append has it. */
int64_t ms_stock_add_shape(struct ms_stock *stock,
                           const Muster__NodeShape *s,
                           struct ms_error *err);

/* ---- what a process may see ----------------------------------------------------------
 *
 * Each vendor has a variable of the environment that tells a process which devices of its
 * node it may see (ms_device_variable); a node with devices of several vendors has several.
 * All of them are set for every worker, so that it sees no device that it was not given.
 */

enum { MS_DEVICE_VARIABLES_MAX = 16 }; /* of one node */

/* The variables of a node's devices, each once, in the order of the devices; that of
 * NVIDIA's for a node without any (or NULL). Borrowed from `s`. Their number. */
size_t ms_shape_variables(const Muster__NodeShape *s,
                          const char *out[MS_DEVICE_VARIABLES_MAX]);

/* What the variable says to whom these devices of the node were given: their names, with
 * commas. Appended to `out`; 0 or -ENOMEM. */
int ms_shape_visible(const Muster__NodeShape *s,
                     const char *variable,
                     const uint32_t *devices,
                     size_t count,
                     struct ms_buf *out);

#endif
