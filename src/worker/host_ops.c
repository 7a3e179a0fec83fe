#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "io/sock.h"
#include "worker/host_impl.h"
#include "worker/stack.h"

#include <errno.h>

static void reply_message(struct ms_request *r, const ProtobufCMessage *m)
{
    size_t len = protobuf_c_message_get_packed_size(m);
    MS_CLEANUP(ms_cleanup_free) uint8_t *body = malloc(len ? len : 1);
    struct iovec iov = {body, len};

    if (!body) {
        ms_request_fail_text(r, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
        return;
    }
    protobuf_c_message_pack(m, body);
    ms_request_reply(r, MS_CODEC_PROTO, &iov, 1);
}

static void do_health(struct ms_host *h, struct ms_request *r)
{
    Muster__Health m;
    char running[MS_METHOD_NAME_MAX + 2];
    char status[] = "ok";
    int64_t since_ns;

    muster__health__init(&m);
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
    m.engines = h->engines;
    m.n_engines = h->engine_count;
    m.ports = h->ports;
    m.n_ports = h->port_count;
    reply_message(r, &m.base);
    pthread_mutex_unlock(&h->lock);
}

static void do_stack(struct ms_host *h, struct ms_request *r)
{
    struct ms_buf python, native;
    Muster__Stack m;

    ms_buf_init(&python);
    ms_buf_init(&native);
    ms_stack_python(h->main_tid, h->python_stack_fd, &python);
    ms_stack_native(&native);
    muster__stack__init(&m);
    m.python = (char *)(uintptr_t)ms_buf_str(&python);
    m.native = (char *)(uintptr_t)ms_buf_str(&native);
    if (m.python && m.native)
        reply_message(r, &m.base);
    else
        ms_request_fail_text(r, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
    ms_buf_finish(&python);
    ms_buf_finish(&native);
}

const char *ms_host_address(const struct ms_host *h)
{
    return h->boot->host[0] ? h->boot->host : "127.0.0.1";
}

int ms_host_hold_ports(struct ms_host *h, uint32_t count, struct ms_error *err)
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

static void do_alloc_ports(struct ms_host *h, struct ms_request *r)
{
    Muster__AllocPorts *ask = muster__alloc_ports__unpack(NULL, r->len, r->body);
    struct ms_error err = {0};
    Muster__Ports m;
    int rc;

    if (!ask) {
        ms_request_fail_text(
            r, MUSTER__FAILURE__KIND__BAD_ARGUMENT, "not an AllocPorts message");
        return;
    }
    pthread_mutex_lock(&h->lock);
    rc = ms_host_hold_ports(h, ask->count, &err);
    if (rc == 0) {
        muster__ports__init(&m);
        m.host = (char *)(uintptr_t)ms_host_address(h);
        m.n_ports = ask->count;
        m.ports = h->ports + h->port_count - ask->count;
        reply_message(r, &m.base);
    }
    pthread_mutex_unlock(&h->lock);
    if (rc < 0)
        ms_request_fail_text(r, MUSTER__FAILURE__KIND__REFUSED, "%s", err.text);
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
    default:
        ms_request_fail_text(
            r, MUSTER__FAILURE__KIND__REFUSED, "unknown operation %u", r->op);
    }
}
