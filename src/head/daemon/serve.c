/* serve.c - a head that others dial, as a daemon */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/daemon/control.h"
#include "head/fleet/fleet.h"
#include "head/head_impl.h"
#include "head/jobs/jobs.h"
#include "head/rest/rest.h"
#include "head/state/persist.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define DEFAULT_NAME   "head"
#define DEFAULT_LISTEN "127.0.0.1:7777"

/* Where others of this user find it without being told: one address a line. */
static int write_addresses(const struct ms_head *h, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_fd) int dir = ms_tree_open(AT_FDCWD, h->session.dir);
    struct ms_buf text;
    int rc = dir < 0 ? dir : 0;

    ms_buf_init(&text);
    for (size_t i = 0; rc == 0 && h->addresses[i]; i++)
        rc = ms_buf_printf(&text, "%s\n", h->addresses[i]);
    if (rc == 0)
        rc = ms_tree_write(dir, "address", text.data, text.len);
    ms_buf_finish(&text);
    return rc < 0 ? ms_error_sys(err, rc, "cannot write '%s/address'", h->session.dir)
                  : 0;
}

static int open_session(struct ms_head *h,
                        const struct ms_head_serve_options *o,
                        struct ms_error *err)
{
    int rc;

    if (!o->is_of_job)
        return ms_session_open(o->name ? o->name : DEFAULT_NAME,
                               o->secret_file,
                               &h->session,
                               &h->lock_fd,
                               err);
    rc = ms_session_create(&h->session, NULL, &h->lock_fd, err);
    return rc < 0 ? rc : ms_session_mark_daemon(&h->session, err);
}

/* What agents are told with their welcome. */
static int set_config(struct ms_head *h, const Muster__StoreConfig *store)
{
    Muster__AgentConfig c = MUSTER__AGENT_CONFIG__INIT;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;

    if (!store)
        return 0;
    c.store = (Muster__StoreConfig *)(uintptr_t)store;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_CONFIG;
    m.config = &c;
    h->config = (Muster__HeadToAgent *)ms_proto_copy(&m.base);
    return h->config ? 0 : -ENOMEM;
}

struct ms_head *ms_head_serve(const struct ms_head_serve_options *o,
                              struct ms_error *err)
{
    static const char *const loopback[] = {DEFAULT_LISTEN, NULL};
    const char *const *addresses = o->listen && o->listen[0] ? o->listen : loopback;
    struct ms_head *h = ms_head_create(&(struct ms_head_options){0}, err);
    int rc;

    if (!h)
        return NULL;
    h->is_daemon = true;
    h->tls = o->tls;
    h->on_stop_asked = o->on_stop_asked;
    h->on_node = o->on_node;
    h->on_driver = o->on_driver;
    h->arg = o->arg;
    if (o->link_grace_ns > 0)
        h->link_grace_ns = o->link_grace_ns;
    if (o->head_grace_ns > 0)
        h->head_grace_ns = o->head_grace_ns;
    h->is_of_job = o->is_of_job;
    rc = open_session(h, o, err);
    if (rc == 0)
        rc = ms_head_build(h, err);
    if (rc == 0 && set_config(h, o->store) < 0)
        rc = ms_error_sys(err, -ENOMEM, "cannot make the head");
    if (rc == 0)
        rc = ms_persist_open(h, err);
    if (rc == 0)
        rc = ms_head_control_open(h, err);
    if (rc == 0)
        rc = ms_head_control_listen(h, addresses, err);
    if (rc == 0 && o->lender)
        rc = ms_fleet_open(h, o->lender, err);
    if (rc == 0 && o->agent_path)
        rc = ms_jobs_open(h, o->agent_path, o->ray, err);
    if (rc == 0 && o->http)
        rc = ms_rest_open(h, o->http, o->http_open_metrics, err);
    if (rc == 0)
        rc = write_addresses(h, err);
    if (rc == 0)
        rc = ms_head_start_thread(h, err);
    if (rc == 0)
        return h;
    if (h->session.was_left)
        ms_fd_close(&h->lock_fd); /* the next head finds the folder as this one did */
    ms_head_stop(h, 0);
    return NULL;
}
