#include "base/cleanup.h"
#include "base/name.h"
#include "head/state.h"
#include "io/sock.h"

#include <errno.h>
#include <stdio.h>

void ms_head_control_reply(struct ms_request *r, const ProtobufCMessage *m)
{
    size_t len = protobuf_c_message_get_packed_size(m);
    MS_CLEANUP(ms_cleanup_free) uint8_t *packed = malloc(len ? len : 1);
    struct iovec iov = {packed, len};

    if (!packed) {
        ms_request_fail_text(r, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
        return;
    }
    protobuf_c_message_pack(m, packed);
    ms_request_reply(r, MS_CODEC_PROTO, &iov, 1);
}

static void on_status(struct ms_head *h, struct ms_request *r)
{
    Muster__Status *s = ms_head_status_message(h);

    if (!s) {
        ms_request_fail_text(r, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
        return;
    }
    ms_head_control_reply(r, &s->base);
    muster__status__free_unpacked(s, NULL);
}

static void on_health(struct ms_head *h, struct ms_request *r)
{
    char ok[] = "ok";
    Muster__Health health = MUSTER__HEALTH__INIT;

    health.status = ok;
    health.pid = h->session.driver_pid;
    ms_head_control_reply(r, &health.base);
}

static void on_request(void *arg, struct ms_request *r)
{
    static const struct {
        uint16_t op;
        void (*answer)(struct ms_head *h, struct ms_request *r);
    } table[] = {{MS_OP_STATUS, on_status},
                 {MS_OP_HEALTH, on_health},
                 {MS_OP_STOP, ms_head_control_stop}};

    for (size_t i = 0; i < MS_COUNT(table); i++)
        if (table[i].op == r->op) {
            table[i].answer(arg, r);
            return;
        }
    ms_request_fail_text(
        r, MUSTER__FAILURE__KIND__NO_METHOD, "the head has no operation %u", r->op);
}

int ms_head_control_open(struct ms_head *h, struct ms_error *err)
{
    static const struct ms_server_ops ops = {.on_request = on_request};
    char path[MS_SESSION_DIR_MAX + 16];
    int fd, rc;

    snprintf(path, sizeof path, "%s/head.sock", h->session.dir);
    fd = ms_unix_listen(path, err);
    if (fd < 0)
        return fd;
    h->control = ms_server_create(&(struct ms_server_options){
        .loop = h->loop,
        .secret = h->session.secret,
        .identity = ms_random_id(),
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

void ms_head_control_close(struct ms_head *h)
{
    ms_server_destroy(MS_TAKE(h->control));
}
