/* fleet.c - leases of an orchestrator's pieces, what happens to them, and which orchestrator */
#include "base/buf.h"
#include "base/cleanup.h"
#include "head/drivers/driver.h"
#include "head/fleet/fleet_impl.h"
#include "head/head_impl.h"
#include "head/nodes/dialled.h"
#include "head/nodes/node.h"
#include "head/stop.h"
#include "orchestrator/local/local.h"
#include "orchestrator/ray/ray.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- leases ------------------------------------------------------------------------ */

struct ms_lease *ms_lease_find(const struct ms_fleet *f, const char *key)
{
    ms_list_each (l, &f->leases, struct ms_lease, link)
        if (strcmp(l->key, key) == 0)
            return l;
    return NULL;
}

struct ms_lease *ms_lease_create(struct ms_fleet *f, const char *key, uint64_t driver)
{
    struct ms_lease *l = calloc(1, sizeof *l);

    if (!l)
        return NULL;
    l->fleet = f;
    l->driver = driver;
    snprintf(l->key, sizeof l->key, "%s", key);
    ms_list_add_tail(&f->leases, &l->link);
    return l;
}

static void lease_destroy(struct ms_lease *l)
{
    ms_list_remove(&l->link);
    for (size_t i = 0; i < l->count; i++)
        free(l->pieces[i].node);
    free(l->pieces);
    free(l);
}

static struct ms_lease_piece *find_piece(const struct ms_lease *l, uint32_t number)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->pieces[i].number == number)
            return &l->pieces[i];
    return NULL;
}

static struct ms_lease_piece *add_piece(struct ms_lease *l, uint32_t number)
{
    size_t room = l->capacity ? l->capacity * 2 : 4;
    struct ms_lease_piece *more;

    if (l->count == l->capacity) {
        more = realloc(l->pieces, room * sizeof *more);
        if (!more)
            return NULL;
        l->pieces = more;
        l->capacity = room;
    }
    l->pieces[l->count] = (struct ms_lease_piece){
        .number = number, .is_for = ms_fleet_known(l->fleet, number)};
    return &l->pieces[l->count++];
}

static void remove_piece(struct ms_lease *l, uint32_t number)
{
    struct ms_lease_piece *p = find_piece(l, number);

    if (!p)
        return;
    free(p->node);
    *p = l->pieces[--l->count];
}

const char *ms_fleet_node(const struct ms_lent_piece *p)
{
    return p->agent ? p->agent : p->node;
}

static uint32_t find_described(const struct ms_fleet *f, const char *name)
{
    for (size_t k = 0; k < f->whole.count; k++)
        if (strcmp(f->whole.shapes[k]->name, name) == 0)
            return (uint32_t)k;
    return MS_FLEET_NO_NODE;
}

void ms_lease_note(struct ms_lease *l, const struct ms_lent_piece *said)
{
    struct ms_lease_piece *p = find_piece(l, said->number);
    const char *node = ms_fleet_node(said);

    if (!p)
        p = add_piece(l, said->number);
    if (!p)
        return;
    p->is_over = said->phase == MS_PHASE_ENDED;
    l->was_begun = l->was_begun || said->phase == MS_PHASE_STARTING;
    if (l->fleet->is_here && said->node && p->is_for == MS_FLEET_NO_NODE)
        p->is_for = find_described(l->fleet, said->node);
    if (node && (!p->node || strcmp(p->node, node) != 0)) {
        free(p->node);
        p->node = strdup(node);
    }
}

bool ms_fleet_lends(const struct ms_fleet *f, const char *node)
{
    if (!f)
        return false;
    ms_list_each (l, &f->leases, struct ms_lease, link)
        for (size_t i = 0; i < l->count; i++)
            if (!l->pieces[i].is_over && l->pieces[i].node &&
                strcmp(l->pieces[i].node, node) == 0)
                return true;
    return false;
}

/* ---- can it be asked? -------------------------------------------------------------- */

static void heard(struct ms_fleet *f, int rc, const struct ms_error *why)
{
    bool is_silent = rc == -EAGAIN || rc == -EACCES;
    int hearing = is_silent ? MS_FLEET_SILENT : MS_FLEET_ANSWERS;

    if (is_silent)
        ms_timer_set(&f->probe, MS_FLEET_PROBE_NS);
    if ((int)f->hearing == hearing)
        return;
    f->hearing = is_silent ? MS_FLEET_SILENT : MS_FLEET_ANSWERS;
    if (f->on_silence)
        f->on_silence(f->arg, is_silent ? why->text : NULL);
}

static void on_probed(void *arg,
                      int rc,
                      const struct ms_error *why,
                      const struct ms_orch_answer *answer)
{
    struct ms_fleet *f = arg;

    (void)answer;
    f->is_probing = false;
    heard(f, rc, why);
}

void ms_fleet_probe(struct ms_fleet *f)
{
    if (!f->watch)
        ms_fleet_listen(f);
    else if (!f->is_probing)
        f->is_probing = f->o->ops->list(f->o, NULL, on_probed, f);
}

static void on_probe(void *arg)
{
    ms_fleet_probe(arg);
}

/* ---- what happens to pieces -------------------------------------------------------- */

/* The node is over, unless other pieces are on it too. */
static void piece_ended(struct ms_fleet *f, const struct ms_lent_piece *p)
{
    const char *node = ms_fleet_node(p);
    struct ms_error why = {0};

    if (!node || ms_fleet_lends(f, node))
        return;
    if (p->cause == MS_CAUSE_RELEASED)
        ms_error_set(&why, -EPIPE, "node %s was given back", node);
    else
        ms_error_set(&why,
                     -EPIPE,
                     "node %s has ended: %s: %s%s%.300s",
                     node,
                     f->o->ops->name,
                     ms_cause_name(p->cause),
                     p->detail && p->detail[0] ? ": " : "",
                     p->detail ? p->detail : "");
    ms_dialled_is_over(f->head, node, why.text);
}

static bool is_one_of(uint32_t number, const uint32_t *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (numbers[i] == number)
            return true;
    return count == 0;
}

void ms_lease_given_back(struct ms_lease *l, const uint32_t *numbers, size_t count)
{
    for (size_t i = 0; i < l->count; i++)
        if (is_one_of(l->pieces[i].number, numbers, count))
            l->pieces[i].is_over = true;
    for (size_t i = 0; i < l->count; i++)
        if (l->pieces[i].is_over && l->pieces[i].node)
            piece_ended(l->fleet,
                        &(struct ms_lent_piece){.node = l->pieces[i].node,
                                                .cause = MS_CAUSE_RELEASED});
}

static void on_event(void *arg, int rc, const struct ms_orch_event *e)
{
    struct ms_fleet *f = arg;
    struct ms_lease *l = rc == 0 ? ms_lease_find(f, e->key) : NULL;

    if (rc < 0) {
        f->watch = NULL;
        ms_fleet_listen(f);
        return;
    }
    if (!l)
        return;
    if (e->gone) {
        remove_piece(l, e->piece->number);
        return;
    }
    ms_lease_note(l, e->piece);
    if (f->on_piece)
        f->on_piece(f->arg, e->key, e->piece);
    if (e->piece->phase != MS_PHASE_ENDED)
        return;
    ms_fleet_probe(f);
    piece_ended(f, e->piece);
}

/* What was missed, if anything was. */
static void note_all(struct ms_fleet *f, const struct ms_orch_answer *answer)
{
    for (size_t i = 0; i < answer->count; i++) {
        const struct ms_reservation *r = &answer->reservations[i];
        struct ms_lease *l = ms_lease_find(f, r->key);

        for (size_t k = 0; l && k < r->count; k++) {
            ms_lease_note(l, r->pieces[k]);
            if (r->pieces[k]->phase == MS_PHASE_ENDED)
                piece_ended(f, r->pieces[k]);
        }
    }
}

static void on_listed(void *arg,
                      int rc,
                      const struct ms_error *why,
                      const struct ms_orch_answer *answer)
{
    struct ms_fleet *f = arg;
    struct ms_error no_memory = {-ENOMEM, "out of memory"};

    f->is_listing = false;
    if (rc == 0) {
        note_all(f, answer);
        f->watch = f->o->ops->watch(f->o, answer->cursor, on_event, f);
    }
    heard(f, rc, why);
    ms_fleet_asks_go(f, f->watch ? NULL : rc < 0 ? why : &no_memory);
}

void ms_fleet_listen(struct ms_fleet *f)
{
    if (f->watch || f->is_listing)
        return;
    f->is_listing = f->o->ops->list(f->o, NULL, on_listed, f);
    if (!f->is_listing)
        ms_fleet_asks_go(f, &(struct ms_error){-ENOMEM, "out of memory"});
}

/* ---- nodes that are avoided -------------------------------------------------------- */

/* As the orchestrator calls it. */
static const char *own_name(const struct ms_fleet *f, const char *node)
{
    size_t len = strlen(f->agent_prefix);

    return strncmp(node, f->agent_prefix, len) == 0 ? node + len : node;
}

static void on_avoided(void *arg,
                       int rc,
                       const struct ms_error *why,
                       const struct ms_orch_answer *answer)
{
    (void)arg;
    (void)rc;
    (void)why;
    (void)answer;
}

void ms_fleet_avoid(struct ms_fleet *f, const char *node, const char *reason)
{
    if (f->o->ops->can & MS_ORCH_AVOID)
        f->o->ops->avoid(f->o, own_name(f, node), reason, on_avoided, f);
}

/* ---- the end ----------------------------------------------------------------------- */

static void end_lease(struct ms_lease *l)
{
    if (l->is_ending)
        return;
    l->is_ending = true;
    ms_fleet_give_back(l);
}

/* Of a timer: what could not be given back. */
static void again(void *arg)
{
    struct ms_fleet *f = arg;

    ms_list_each (l, &f->leases, struct ms_lease, link)
        if (l->is_ending && l->asks == 0)
            ms_fleet_give_back(l);
}

void ms_lease_settle(struct ms_lease *l)
{
    struct ms_head *h = l->fleet->head;
    uint64_t driver = l->driver;

    if (l->asks || l->is_held)
        return;
    lease_destroy(l);
    ms_driver_cluster_gone(h, driver);
    ms_head_stop_step(h);
}

void ms_fleet_driver_gone(struct ms_head *h, uint64_t driver)
{
    if (!h->fleet)
        return;
    ms_list_each (l, &h->fleet->leases, struct ms_lease, link)
        if (l->driver == driver)
            end_lease(l);
}

bool ms_fleet_has(const struct ms_fleet *f, uint64_t driver)
{
    if (!f)
        return false;
    ms_list_each (l, &f->leases, struct ms_lease, link)
        if (l->driver == driver)
            return true;
    return false;
}

bool ms_fleet_end(struct ms_fleet *f)
{
    ms_list_each (l, &f->leases, struct ms_lease, link)
        end_lease(l);
    return ms_list_is_empty(&f->leases);
}

/* ---- which orchestrators there are ------------------------------------------------- */

static struct ms_orchestrator *
open_local(struct ms_fleet *f, const struct ms_head_lender *l, struct ms_error *err)
{
    char log_dir[PATH_MAX];

    snprintf(log_dir, sizeof log_dir, "%s/logs", f->head->session.dir);
    return ms_orchestrator_local(
        &(struct ms_local_options){
            .loop = f->head->loop,
            .agent_path = l->agent_path,
            .nodes = (const Muster__NodeShape *const *)f->whole.shapes,
            .node_count = f->whole.count,
            .prefixes = l->prefixes,
            .agent_prefix = f->agent_prefix,
            .state_dir = l->is_durable ? f->head->session.dir : NULL,
            .log_dir = log_dir},
        err);
}

/* The folder with what the next head needs: one for each prefix. */
static int
make_state_dir(const struct ms_fleet *f, char out[PATH_MAX], struct ms_error *err)
{
    snprintf(out, PATH_MAX, "%s/lent-%s", f->head->session.dir, f->agent_prefix);
    if (mkdir(out, 0700) < 0 && errno != EEXIST)
        return ms_error_sys(err, -errno, "cannot make '%s'", out);
    return 0;
}

static struct ms_orchestrator *
open_ray(struct ms_fleet *f, const struct ms_head_lender *l, struct ms_error *err)
{
    char state_dir[PATH_MAX];

    if (l->is_durable && make_state_dir(f, state_dir, err) < 0)
        return NULL;
    return ms_ray_create(
        &(struct ms_ray_options){
            .loop = f->head->loop,
            .site = {.address = l->address, .muster = l->agent_path},
            .name = f->head->session.name,
            .grace_ns = l->is_durable ? f->head->head_grace_ns : 0,
            .state_dir = l->is_durable ? state_dir : NULL},
        err);
}

static const struct {
    const char *name;
    struct ms_orchestrator *(*open)(struct ms_fleet *f,
                                    const struct ms_head_lender *l,
                                    struct ms_error *err);
    bool is_here; /* its nodes are on this machine */
} table[] = {
    {"local", open_local, true},
    {"ray", open_ray, false},
};

static int find(const char *name, size_t *out, struct ms_error *err)
{
    for (*out = 0; *out < MS_COUNT(table); ++*out)
        if (strcmp(table[*out].name, name) == 0)
            return 0;
    return ms_error_set(err, -EINVAL, "orchestrator '%.32s': there is none", name);
}

/* ---- life -------------------------------------------------------------------------- */

void ms_fleet_destroy(struct ms_fleet *f)
{
    if (!f)
        return;
    ms_fleet_asks_finish(f);
    if (f->o)
        f->o->ops->destroy(f->o);
    ms_list_each (l, &f->leases, struct ms_lease, link)
        lease_destroy(l);
    ms_timer_finish(&f->again);
    ms_timer_finish(&f->probe);
    ms_whole_nodes_finish(&f->whole);
    free(f->address);
    free(f->known);
    free(f);
}

/* All of ours: an agent takes the first one that answers. */
static char *address_of(const struct ms_head *h)
{
    struct ms_buf text;
    char *out = NULL;
    int rc = 0;

    ms_buf_init(&text);
    for (size_t i = 0; rc == 0 && h->addresses && h->addresses[i]; i++)
        rc = ms_buf_printf(&text, "%s%s", i ? "," : "", h->addresses[i]);
    if (rc == 0 && ms_buf_str(&text))
        out = strdup(ms_buf_str(&text));
    ms_buf_finish(&text);
    return out;
}

static int
init(struct ms_fleet *f, const struct ms_head_lender *l, struct ms_error *err)
{
    struct ms_head *h = f->head;
    size_t at = 0;
    int rc = find(l->name, &at, err);

    snprintf(f->agent_prefix,
             sizeof f->agent_prefix,
             "%s",
             l->agent_prefix ? l->agent_prefix : "");
    f->on_piece = l->on_piece;
    f->on_silence = l->on_silence;
    f->arg = l->arg;
    snprintf(f->secret_file, sizeof f->secret_file, "%s/secret", h->session.dir);
    if (rc == 0)
        rc = ms_whole_nodes_init(
            &f->whole, l->nodes, l->node_count, table[at].is_here, err);
    if (rc == 0 && (ms_timer_init(&f->again, h->loop, again, f) < 0 ||
                    ms_timer_init(&f->probe, h->loop, on_probe, f) < 0))
        rc = ms_error_set(err, -ENOMEM, "out of memory");
    if (rc < 0)
        return rc;
    f->address = address_of(h);
    if (!f->address)
        return ms_error_set(err, -ENOMEM, "out of memory");
    f->is_here = table[at].is_here;
    f->o = table[at].open(f, l, err);
    return f->o ? 0 : -EIO;
}

static struct ms_fleet *allocate(struct ms_head *h, struct ms_error *err)
{
    struct ms_fleet *f = calloc(1, sizeof *f);

    if (!f) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    f->head = h;
    ms_list_init(&f->leases);
    ms_list_init(&f->asks);
    return f;
}

int ms_fleet_open(struct ms_head *h,
                  const struct ms_head_lender *l,
                  struct ms_error *err)
{
    h->fleet = allocate(h, err); /* destroyed with the head */
    return h->fleet ? init(h->fleet, l, err) : -ENOMEM;
}

struct ms_fleet *
ms_fleet_create(struct ms_head *h, const struct ms_head_lender *l, struct ms_error *err)
{
    struct ms_fleet *f = allocate(h, err);

    if (!f || init(f, l, err) == 0)
        return f;
    ms_fleet_destroy(f);
    return NULL;
}
