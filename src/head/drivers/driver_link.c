/* driver_link.c - a driver's link: it comes, is silent, breaks, comes back */
#include "base/cleanup.h"
#include "head/drivers/driver_impl.h"
#include "head/head_impl.h"

#include <errno.h>

/* ---- its link -------------------------------------------------------------------- */

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct ms_driver *d = arg;

    if (ms_driver_read(d, body, len))
        return;
    ms_link_destroy(MS_TAKE(d->wire));
    ms_driver_end(d, MS_STOP_GRACE_NS);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    struct ms_driver *d = arg;
    bool is_end = ms_link_has_ended(why);

    ms_link_destroy(MS_TAKE(d->wire));
    if (d->over) {
        ms_driver_destroy(d);
    } else if (is_end) {
        ms_driver_end(d, MS_STOP_GRACE_NS);
    } else if (d->state == MS_DRIVER_HERE) {
        d->state = MS_DRIVER_AWAY;
        d->suspect = true;
        ms_timer_set(&d->grace, d->head->link_grace_ns);
    }
}

static void on_suspect(void *arg, bool suspect)
{
    struct ms_driver *d = arg;

    d->suspect = suspect;
    if (d->state != MS_DRIVER_HERE)
        return;
    if (suspect)
        ms_timer_set(&d->grace, d->head->link_grace_ns - MS_SUSPECT_NS);
    else
        ms_timer_cancel(&d->grace);
}

static const struct ms_link_ops link_ops = {
    .on_body = on_body,
    .on_closed = on_closed,
    .on_suspect = on_suspect,
};

/* Without workers. */
static size_t count_drivers(const struct ms_head *h)
{
    const struct ms_driver *d;
    size_t count = 0, at = 0;

    while ((d = ms_map_next(&h->drivers, &at)))
        count += !ms_driver_worker(d);
    return count;
}

static int check_hello(struct ms_head *h,
                       const Muster__DriverHello *hello,
                       const struct ms_driver *d,
                       struct ms_error *err)
{
    if (!hello->driver || !hello->context)
        return ms_error_set(err, -EINVAL, "a driver without an id or a context");
    if (d && d->state == MS_DRIVER_ENDING)
        return ms_error_set(err,
                            -EBUSY,
                            "this driver was silent for more than %.3g s, and its "
                            "clusters were ended",
                            (double)h->link_grace_ns / (double)MS_NS_PER_S);
    if (!d && !hello->worker && count_drivers(h) >= MS_DRIVERS_MAX)
        return ms_error_set(err,
                            -ENOSPC,
                            "there are %u drivers; a head can have no more",
                            MS_DRIVERS_MAX);
    return 0;
}

int ms_driver_attach(struct ms_head *h,
                     struct ms_link *wire,
                     Muster__DriverHello **hello,
                     struct ms_error *err)
{
    struct ms_driver *d = ms_driver_find(h, (*hello)->driver);
    int rc = check_hello(h, *hello, d, err);

    if (rc < 0)
        return rc;
    if (!d)
        d = ms_driver_create(h, (*hello)->driver);
    if (!d)
        return ms_error_sys(err, -ENOMEM, "cannot take another driver");
    muster__driver_hello__free_unpacked(d->hello, NULL);
    d->hello = MS_TAKE(*hello);
    d->hello->context->driver = d->id;
    ms_link_destroy(d->wire);
    d->wire = wire;
    ms_link_set_ops(wire, &link_ops, d);
    d->state = MS_DRIVER_HERE;
    d->suspect = false;
    ms_timer_cancel(&d->grace);
    return 0;
}
