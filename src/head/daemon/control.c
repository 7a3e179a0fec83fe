/* control.c - the head's server: links of agents, drivers and tools */
#include "head/daemon/control.h"
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/head_impl.h"
#include "io/addr.h"
#include "io/sock.h"
#include "io/tcp.h"
#include "wire/server/server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void reply(struct ms_request *r, const ProtobufCMessage *m)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf packed = {0};
    int rc = ms_proto_pack(m, &packed);
    struct iovec iov = {packed.data, packed.len};

    if (rc == 0)
        ms_request_reply(r, MS_CODEC_PROTO, &iov, 1);
    else
        ms_request_fail_text(r, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
}

static void on_health(struct ms_head *h, struct ms_request *r)
{
    char ok[] = "ok";
    Muster__Health health = MUSTER__HEALTH__INIT;

    health.status = ok;
    health.pid = h->session.driver_pid;
    reply(r, &health.base);
}

static void on_request(void *arg, struct ms_request *r)
{
    if (r->op == MS_OP_HEALTH)
        on_health(arg, r);
    else
        ms_request_fail_text(
            r, MUSTER__FAILURE__KIND__NO_METHOD, "the head has no operation %u", r->op);
}

int ms_head_control_open(struct ms_head *h, struct ms_error *err)
{
    static const struct ms_server_ops ops = {
        .on_request = on_request,
        .on_link = ms_head_on_link,
    };
    char path[MS_SESSION_DIR_MAX + 16];
    int fd, rc;

    snprintf(path, sizeof path, "%s/head.sock", h->session.dir);
    fd = ms_unix_listen(path, SOCK_STREAM, err);
    if (fd < 0)
        return fd;
    h->control = ms_server_create(&(struct ms_server_options){
        .loop = h->loop,
        .secret = h->session.secret,
        .identity = h->id,
        .tls = h->tls,
        .ops = &ops,
        .arg = h,
    });
    if (!h->control) {
        close(fd);
        return ms_error_sys(err, -ENOMEM, "cannot serve '%s'", path);
    }
    rc = ms_server_listen(h->control, fd);
    return rc < 0 ? ms_error_sys(err, rc, "cannot serve '%s'", path) : 0;
}

static int add_address(struct ms_head *h, const struct ms_addr *a)
{
    char text[MS_ADDR_TEXT_MAX];
    size_t count = 0;
    char **more;

    while (h->addresses && h->addresses[count])
        count++;
    more = realloc(h->addresses, (count + 2) * sizeof(char *));
    if (!more)
        return -ENOMEM;
    h->addresses = more;
    more[count] = ms_addr_format(a, text, sizeof text) ? strdup(text) : NULL;
    more[count + 1] = NULL;
    return more[count] ? 0 : -ENOMEM;
}

/* A listener on all interfaces is known by the addresses of each. */
static int add_addresses(struct ms_head *h, struct ms_addr *a)
{
    char hosts[MS_ADDRS_MAX][MS_HOST_MAX + 1];
    bool all = !a->name[0] || strcmp(a->name, "*") == 0 ||
               strcmp(a->name, "0.0.0.0") == 0 || strcmp(a->name, "::") == 0;
    int rc = 0, count = all ? ms_host_addresses(hosts, MS_ADDRS_MAX) : 0;

    for (int i = 0; i < count && rc == 0; i++) {
        memcpy(a->name, hosts[i], sizeof hosts[i]);
        rc = add_address(h, a);
    }
    if (all && count <= 0)
        strcpy(a->name, "127.0.0.1");
    return count > 0 ? rc : add_address(h, a);
}

static int listen_at(struct ms_head *h, const char *address, struct ms_error *err)
{
    struct ms_addr a;
    int fd, rc = ms_addr_parse_listen(address, &a, err);

    if (rc < 0)
        return rc;
    if (a.is_unix)
        return ms_error_set(err, -EINVAL, "'%s' is not HOST:PORT", address);
    fd = ms_tcp_listen(a.name, &a.port, err);
    if (fd < 0)
        return fd;
    rc = ms_server_listen(h->control, fd);
    if (rc == 0)
        rc = add_addresses(h, &a);
    return rc < 0 ? ms_error_sys(err, rc, "cannot serve '%s'", address) : 0;
}

int ms_head_control_listen(struct ms_head *h,
                           const char *const *addresses,
                           struct ms_error *err)
{
    int rc = 0;

    for (size_t i = 0; addresses[i] && rc == 0; i++)
        rc = listen_at(h, addresses[i], err);
    return rc;
}

void ms_head_control_close(struct ms_head *h)
{
    ms_server_destroy(MS_TAKE(h->control));
}
