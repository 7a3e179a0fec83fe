/* dial.c - trying the addresses of a list, one after the other */
#include "wire/dial.h"
#include "base/cleanup.h"
#include "io/sock.h"

#include <errno.h>
#include <string.h>

int ms_dial_init(struct ms_dial *d, const char *addresses, struct ms_error *err)
{
    struct ms_addr_list list;
    bool usable = false;
    int rc = ms_addr_list_parse(addresses, &list, err);

    *d = (struct ms_dial){0};
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < list.count; i++)
        usable |= ms_addr_is_usable(&list.at[i]);
    if (!usable)
        return ms_error_set(err,
                            -EADDRNOTAVAIL,
                            "'%.200s' has only sockets of another host",
                            addresses);
    d->count = list.count;
    d->text = strdup(addresses);
    return d->text ? 0 : ms_error_set(err, -ENOMEM, "out of memory");
}

static void forget_name(struct ms_dial *d)
{
    ms_lookup_drop(d->lookup);
    d->lookup = NULL;
    d->found = NULL;
    d->found_at = 0;
}

void ms_dial_finish(struct ms_dial *d)
{
    forget_name(d);
    free(d->text);
    d->text = NULL;
}

void ms_dial_restart(struct ms_dial *d)
{
    forget_name(d);
    d->tried = 0;
    d->refused = d->failed = 0;
    d->last = 0;
}

/* Does it say that nobody listens there? */
static bool is_refusal(int why)
{
    return why == -ECONNREFUSED || why == -ENOENT;
}

void ms_dial_failed(struct ms_dial *d, int why)
{
    d->failed++;
    d->refused += is_refusal(why);
    d->last = why;
}

static size_t current(const struct ms_dial *d)
{
    return (d->first + d->tried - 1) % d->count;
}

void ms_dial_worked(struct ms_dial *d)
{
    if (d->tried)
        d->first = current(d);
}

bool ms_dial_was_refused(const struct ms_dial *d)
{
    return d->failed && d->refused == d->failed;
}

/* ---- one attempt ------------------------------------------------------------------ */

static int
open_unix(const struct ms_addr *a, struct ms_transport **t, struct ms_error *err)
{
    int fd = ms_unix_connect(a->name, SOCK_STREAM, err), rc;

    if (fd < 0)
        return fd;
    *t = ms_transport_unix(fd);
    if (!*t) {
        close(fd);
        return ms_error_set(err, -ENOMEM, "out of memory");
    }
    rc = (*t)->ops->check_peer(*t, err);
    if (rc < 0) {
        ms_transport_destroy(*t);
        *t = NULL;
    }
    return rc;
}

static int open_tcp(const struct sockaddr_storage *sa,
                    socklen_t len,
                    struct ms_net *net,
                    struct ms_transport **t,
                    struct ms_error *err)
{
    struct ms_tls *tls = NULL;
    int fd;

    if (ms_tls_is_due(net->mode, sa)) {
        tls = ms_net_tls(net);
        if (!tls)
            return ms_error_set(err, -ENOMEM, "TLS cannot be set up");
    }
    fd = ms_tcp_connect((const struct sockaddr *)sa, len, err);
    if (fd < 0)
        return fd;
    *t = tls ? ms_transport_tls(fd, tls, false) : ms_transport_tcp(fd);
    if (*t)
        return 0;
    close(fd);
    return ms_error_set(err, -ENOMEM, "out of memory");
}

static int open_entry(struct ms_dial *d,
                      const struct ms_addr *a,
                      struct ms_net *net,
                      struct ms_transport **t,
                      struct ms_error *err)
{
    struct sockaddr_storage sa;
    socklen_t len;

    if (a->is_unix)
        return open_unix(a, t, err);
    if (ms_tcp_numeric(a->name, a->port, &sa, &len) == 0)
        return open_tcp(&sa, len, net, t, err);
    d->lookup = ms_lookup_start(a->name, a->port);
    return d->lookup ? -EINPROGRESS
                     : ms_error_set(err, -EAGAIN, "no thread to look a name up");
}

static int attempt(struct ms_dial *d,
                   struct ms_net *net,
                   struct ms_transport **t,
                   struct ms_error *err)
{
    struct ms_addr_list list;
    const struct ms_addr *a;
    int rc;

    if (d->lookup && !d->found) {
        rc = ms_lookup_result(d->lookup, &d->found, err);
        if (rc < 0)
            return rc;
    }
    if (d->found && d->found_at < d->found->count) {
        size_t i = d->found_at++; /* the next one that the entry's name stands for */

        return open_tcp(&d->found->at[i], d->found->len[i], net, t, err);
    }
    forget_name(d);
    rc = ms_addr_list_parse(d->text, &list, err);
    if (rc < 0)
        return rc;
    do {
        if (d->tried == d->count)
            return -ENODATA;
        d->tried++;
        a = &list.at[current(d)];
    } while (!ms_addr_is_usable(a));
    return open_entry(d, a, net, t, err);
}

int ms_dial_next(struct ms_dial *d,
                 struct ms_net *net,
                 struct ms_transport **t,
                 struct ms_error *err)
{
    int rc = attempt(d, net, t, err);

    if (rc == 0 || rc == -EINPROGRESS || rc == -ENODATA)
        return rc;
    if (d->lookup && !d->found)
        forget_name(d); /* its answer was a failure */
    ms_dial_failed(d, rc);
    return rc;
}
