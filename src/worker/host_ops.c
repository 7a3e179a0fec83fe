/* host_ops.c - what a worker's I/O thread answers by itself: health, stacks, ports */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/proto.h"
#include "io/sock.h"
#include "worker/host_impl.h"
#include "worker/stack.h"

#include <errno.h>
#include <string.h>

static void reply_message(struct ms_request *r, const ProtobufCMessage *m)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf body = {0};

    if (ms_proto_pack(m, &body) < 0)
        ms_request_fail_text(r, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
    else
        ms_request_reply(r, MS_CODEC_PROTO, &(struct iovec){body.data, body.len}, 1);
}

static void do_health(struct ms_host *h, struct ms_request *r)
{
    Muster__Health m = MUSTER__HEALTH__INIT;
    char running[MS_METHOD_NAME_MAX + 2];
    char status[] = "ok";
    int64_t since_ns;

    m.status = status;
    m.uid = h->boot->uid;
    m.cluster = h->boot->cluster;
    m.rank = h->boot->rank;
    m.pid = getpid();
    if (ms_server_engine_running(h->server,
                                 running,
                                 sizeof running,
                                 &since_ns,
                                 &m.calls_queued,
                                 &m.calls_done) &&
        since_ns) {
        m.running = running;
        m.running_ns = (uint64_t)(ms_now_ns() - since_ns);
    }
    pthread_mutex_lock(&h->lock);
    if (h->engines) {
        m.engines = h->engines->engines;
        m.n_engines = h->engines->n_engines;
    }
    m.ports = h->ports;
    m.n_ports = h->port_count;
    reply_message(r, &m.base);
    pthread_mutex_unlock(&h->lock);
}

json_t *ms_host_engines(void *arg)
{
    struct ms_host *h = arg;
    MS_LOCK(&h->lock);

    return h->engines ? ms_json_strings(h->engines->engines, h->engines->n_engines)
                      : json_array();
}

Muster__Stack *ms_host_stack(const struct ms_host *h)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf python = {0};
    MS_CLEANUP(ms_buf_finish) struct ms_buf native = {0};
    Muster__Stack m = MUSTER__STACK__INIT;

    ms_stack_python(h->main_tid, h->python_stack_fd, &python);
    ms_stack_native(&native);
    m.python = (char *)(uintptr_t)ms_buf_str(&python);
    m.native = (char *)(uintptr_t)ms_buf_str(&native);
    return m.python && m.native ? (Muster__Stack *)ms_proto_copy(&m.base) : NULL;
}

static void do_stack(const struct ms_host *h, struct ms_request *r)
{
    Muster__Stack *m = ms_host_stack(h);

    if (m)
        reply_message(r, &m->base);
    else
        ms_request_fail_text(r, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
    muster__stack__free_unpacked(m, NULL);
}

/* ---- progress ---------------------------------------------------------------------- */

static _Atomic uint64_t progress; /* of this process, of all threads that report it */

void ms_host_report_progress(void)
{
    progress++;
}

uint64_t ms_host_progress(void)
{
    return progress;
}

const char *ms_host_address(const struct ms_host *h)
{
    return h->boot->host[0] ? h->boot->host : "127.0.0.1";
}

/* With the lock held. */
static int hold_ports(struct ms_host *h, uint32_t count, struct ms_error *err)
{
    size_t before = h->port_count;

    if (count == 0 || count > MS_PORTS_MAX - before)
        return ms_error_set(err,
                            -EINVAL,
                            "%u ports asked, %zu are held, at most %u are possible",
                            count,
                            before,
                            MS_PORTS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        uint16_t port;
        int fd = ms_port_hold(ms_host_address(h), &port, err);

        if (fd < 0) {
            while (h->port_count > before)
                close(h->port_fds[--h->port_count]);
            return fd;
        }
        h->port_fds[h->port_count] = fd;
        h->ports[h->port_count++] = port;
    }
    return 0;
}

int ms_host_alloc_ports(void *host,
                        uint32_t count,
                        uint32_t *ports,
                        struct ms_error *err)
{
    struct ms_host *h = host;
    MS_LOCK(&h->lock);
    int rc = hold_ports(h, count, err);

    if (rc == 0)
        memcpy(ports, h->ports + h->port_count - count, count * sizeof *ports);
    return rc;
}

static void do_alloc_ports(struct ms_host *h, struct ms_request *r)
{
    Muster__AllocPorts *ask = muster__alloc_ports__unpack(NULL, r->len, r->body);
    Muster__Ports m = MUSTER__PORTS__INIT;
    uint32_t ports[MS_PORTS_MAX];
    struct ms_error err = {0};

    if (!ask) {
        ms_request_fail_text(
            r, MUSTER__FAILURE__KIND__BAD_ARGUMENT, "not an AllocPorts message");
        return;
    }
    if (ms_host_alloc_ports(h, ask->count, ports, &err) < 0) {
        ms_request_fail_text(r, MUSTER__FAILURE__KIND__REFUSED, "%s", err.text);
    } else {
        m.host = (char *)(uintptr_t)ms_host_address(h);
        m.n_ports = ask->count;
        m.ports = ports;
        reply_message(r, &m.base);
    }
    muster__alloc_ports__free_unpacked(ask, NULL);
}

void ms_host_on_request(void *arg, struct ms_request *r)
{
    switch (r->op) {
    case MS_OP_HEALTH:
        do_health(arg, r);
        break;
    case MS_OP_STACK:
        do_stack(arg, r);
        break;
    case MS_OP_ALLOC_PORTS:
        do_alloc_ports(arg, r);
        break;
    case MS_OP_DEBUG:
        ms_debug_ask(((struct ms_host *)arg)->debug, r);
        break;
    default:
        ms_request_fail_text(
            r, MUSTER__FAILURE__KIND__REFUSED, "unknown operation %u", r->op);
    }
}
