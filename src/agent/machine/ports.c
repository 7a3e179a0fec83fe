/* ports.c - TCP ports that are reserved for others by holding their sockets */
#include "agent/machine/ports.h"
#include "base/limits.h"
#include "io/sock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void ms_ports_init(struct ms_ports *p)
{
    ms_list_init(&p->held);
    p->count = 0;
}

static void drop(struct ms_ports *p, struct ms_held_port *h)
{
    ms_list_remove(&h->link);
    close(h->fd);
    free(h);
    p->count--;
}

void ms_ports_finish(struct ms_ports *p)
{
    ms_list_each (h, &p->held, struct ms_held_port, link)
        drop(p, h);
}

int ms_ports_hold(struct ms_ports *p,
                  const char *host,
                  const char *owner,
                  uint16_t *port,
                  struct ms_error *err)
{
    size_t len = strlen(owner) + 1;
    struct ms_held_port *h;
    int fd;

    if (p->count >= MS_PORTS_MAX)
        return ms_error_set(
            err, -ENOSPC, "this agent holds %u ports and no more", MS_PORTS_MAX);
    fd = ms_port_hold(host, port, err);
    if (fd < 0)
        return fd;
    h = malloc(sizeof *h + len);
    if (!h) {
        close(fd);
        return ms_error_set(err, -ENOMEM, "out of memory");
    }
    h->fd = fd;
    h->port = *port;
    snprintf(h->host, sizeof h->host, "%s", host);
    memcpy(h->owner, owner, len);
    ms_list_add_tail(&p->held, &h->link);
    p->count++;
    return 0;
}

unsigned ms_ports_drop(struct ms_ports *p, const char *owner)
{
    unsigned before = p->count;

    ms_list_each (h, &p->held, struct ms_held_port, link)
        if (!strcmp(h->owner, owner))
            drop(p, h);
    return before - p->count;
}
