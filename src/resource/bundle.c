/* bundle.c - what one process needs on one node, and taking it there */
#include "resource/bundle.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint32_t ms_bundle_width(const struct ms_bundle *b)
{
    return b->share_milli ? 1 : b->devices;
}

static bool extras_are_equal(const struct ms_bundle *a, const struct ms_bundle *b)
{
    if (a->extra_count != b->extra_count)
        return false;
    for (size_t i = 0; i < a->extra_count; i++)
        if (a->extras[i].amount != b->extras[i].amount ||
            strcmp(a->extras[i].name, b->extras[i].name) != 0)
            return false;
    return true;
}

static bool selectors_are_equal(const struct ms_bundle *a, const struct ms_bundle *b)
{
    if (!a->selector || !b->selector)
        return a->selector == b->selector;
    return a->selector == b->selector || ms_selector_is_equal(a->selector, b->selector);
}

bool ms_bundle_is_equal(const struct ms_bundle *a, const struct ms_bundle *b)
{
    return a->cpu_milli == b->cpu_milli && a->memory == b->memory &&
           a->devices == b->devices && a->share_milli == b->share_milli &&
           a->device_memory == b->device_memory && a->kind == b->kind &&
           a->one_domain == b->one_domain && extras_are_equal(a, b) &&
           selectors_are_equal(a, b);
}

int ms_bundle_check(const struct ms_bundle *b, struct ms_error *err)
{
    if (b->share_milli && b->devices)
        return ms_error_set(
            err, -EINVAL, "a bundle takes whole devices or a share of one, not both");
    if (b->share_milli >= MS_WHOLE_MILLI)
        return ms_error_set(err,
                            -EINVAL,
                            "a share of a device is less than 1, not %u.%03u",
                            b->share_milli / 1000,
                            b->share_milli % 1000);
    if (b->devices > MS_STOCK_DEVICES_MAX)
        return ms_error_set(err,
                            -EINVAL,
                            "%u devices for one bundle are more than %u",
                            b->devices,
                            MS_STOCK_DEVICES_MAX);
    if (b->device_memory && ms_bundle_width(b) == 0)
        return ms_error_set(err, -EINVAL, "device memory is asked for, but no device");
    for (size_t i = 0; i < b->extra_count; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(b->extras[i].name, b->extras[j].name) == 0)
                return ms_error_set(
                    err, -EINVAL, "a bundle asks for '%s' twice", b->extras[i].name);
    return 0;
}

/* ---- room ------------------------------------------------------------------------ */

/* How often `each` fits into what is free, at most `most`. */
static uint32_t times(uint64_t total, uint64_t held, uint64_t each, uint32_t most)
{
    uint64_t n;

    if (each == 0)
        return most;
    n = total > held ? (total - held) / each : 0;
    return n < most ? (uint32_t)n : most;
}

static bool is_wanted(const struct ms_bundle *b, const struct ms_device *d)
{
    return (b->kind == 0 || b->kind == d->kind) &&
           (b->device_memory == 0 || d->memory >= b->device_memory);
}

static bool is_whole(const struct ms_bundle *b, const struct ms_device *d)
{
    return ms_device_is_free(d) && is_wanted(b, d);
}

static bool has_share(const struct ms_bundle *b, const struct ms_device *d)
{
    return d->mapped == 0 && is_wanted(b, d) &&
           d->held_milli + b->share_milli <= MS_WHOLE_MILLI &&
           d->memory - d->memory_held >= b->device_memory;
}

static uint32_t
share_room(const struct ms_bundle *b, const struct ms_stock_node *n, uint32_t most)
{
    uint32_t room = 0;

    for (uint32_t i = 0; i < n->device_count && room < most; i++) {
        const struct ms_device *d = &n->devices[i];

        if (!has_share(b, d))
            continue;
        room += times(d->memory,
                      d->memory_held,
                      b->device_memory,
                      (MS_WHOLE_MILLI - d->held_milli) / b->share_milli);
    }
    return room < most ? room : most;
}

/* The whole devices of the domain of device `at`; 0 if an earlier device has that domain. */
static uint32_t
count_domain(const struct ms_bundle *b, const struct ms_stock_node *n, uint32_t at)
{
    uint32_t domain = n->devices[at].domain, count = 0;

    for (uint32_t i = 0; i < at; i++)
        if (n->devices[i].domain == domain)
            return 0;
    for (uint32_t i = at; i < n->device_count; i++)
        count += n->devices[i].domain == domain && is_whole(b, &n->devices[i]);
    return count;
}

static uint32_t whole_room(const struct ms_bundle *b, const struct ms_stock_node *n)
{
    uint32_t room = 0;

    if (n->whole < b->devices)
        return 0;
    if (b->one_domain) {
        for (uint32_t i = 0; i < n->device_count; i++)
            room += count_domain(b, n, i) / b->devices;
        return room;
    }
    if (b->kind == 0 && b->device_memory == 0)
        return n->whole / b->devices;
    for (uint32_t i = 0; i < n->device_count; i++)
        room += is_whole(b, &n->devices[i]);
    return room / b->devices;
}

static uint32_t
device_room(const struct ms_bundle *b, const struct ms_stock_node *n, uint32_t most)
{
    uint32_t room = most;

    if (b->share_milli)
        room = share_room(b, n, most);
    else if (b->devices)
        room = whole_room(b, n);
    return room < most ? room : most;
}

uint32_t
ms_bundle_room(const struct ms_bundle *b, const struct ms_stock_node *n, uint32_t most)
{
    if (n->is_gone ||
        (b->selector && ms_selector_misfit(b->selector, n->labels, n->label_count)))
        return 0;
    most = times(n->cpu_milli, n->cpu_milli_held, b->cpu_milli, most);
    most = times(n->memory, n->memory_held, b->memory, most);
    for (size_t i = 0; most && i < b->extra_count; i++) {
        const struct ms_extra *x = ms_stock_find_extra(n, b->extras[i].name);

        most = times(x ? x->total : 0, x ? x->held : 0, b->extras[i].amount, most);
    }
    return most ? device_room(b, n, most) : 0;
}

/* ---- which devices --------------------------------------------------------------- */

/* The fullest that has room. */
static void choose_share(const struct ms_bundle *b,
                         const struct ms_stock_node *n,
                         uint32_t *devices)
{
    uint32_t best = UINT32_MAX;

    for (uint32_t i = 0; i < n->device_count; i++)
        if (has_share(b, &n->devices[i]) &&
            (best == UINT32_MAX ||
             n->devices[i].held_milli > n->devices[best].held_milli))
            best = i;
    assert(best != UINT32_MAX);
    devices[0] = best;
}

/* The domain with the fewest whole devices that suffice, or with the most if none does;
 * by its first device. Those that `used` marks are given up. */
static uint32_t choose_domain(const struct ms_bundle *b,
                              const struct ms_stock_node *n,
                              const bool *used,
                              uint32_t want)
{
    uint32_t best = UINT32_MAX, best_count = 0;

    for (uint32_t i = 0; i < n->device_count; i++) {
        uint32_t count = used[i] ? 0 : count_domain(b, n, i);
        bool better = best_count < want ? count > best_count
                                        : count >= want && count < best_count;

        if (count && (best == UINT32_MAX || better)) {
            best = i;
            best_count = count;
        }
    }
    return best;
}

static uint32_t take_domain(const struct ms_bundle *b,
                            const struct ms_stock_node *n,
                            uint32_t at,
                            uint32_t want,
                            uint32_t *devices)
{
    uint32_t got = 0;

    for (uint32_t i = at; i < n->device_count && got < want; i++)
        if (n->devices[i].domain == n->devices[at].domain &&
            is_whole(b, &n->devices[i]))
            devices[got++] = i;
    return got;
}

static int compare(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void choose_whole(const struct ms_bundle *b,
                         const struct ms_stock_node *n,
                         uint32_t *devices)
{
    bool used[MS_STOCK_DEVICES_MAX] = {false};
    uint32_t got = 0;

    while (got < b->devices) {
        uint32_t at = choose_domain(b, n, used, b->devices - got);

        assert(at != UINT32_MAX);
        used[at] = true;
        got += take_domain(b, n, at, b->devices - got, devices + got);
    }
    qsort(devices, got, sizeof *devices, compare);
}

/* ---- taking and giving ----------------------------------------------------------- */

/* `sign` is 1 to hold it, and -1 to give it back. */
static void
hold_device(struct ms_stock_node *n, const struct ms_bundle *b, uint32_t at, int sign)
{
    struct ms_device *d = &n->devices[at];
    uint32_t milli = b->share_milli ? b->share_milli : MS_WHOLE_MILLI;

    n->whole -= ms_device_is_free(d);
    d->held_milli += (uint32_t)sign * milli;
    d->memory_held += (uint64_t)sign * b->device_memory;
    n->whole += ms_device_is_free(d);
}

static void hold(const struct ms_bundle *b,
                 struct ms_stock_node *n,
                 const uint32_t *devices,
                 int sign)
{
    n->cpu_milli_held += (uint64_t)sign * b->cpu_milli;
    n->memory_held += (uint64_t)sign * b->memory;
    for (size_t i = 0; i < b->extra_count; i++) {
        struct ms_extra *x = ms_stock_find_extra(n, b->extras[i].name);

        if (x)
            x->held += (uint64_t)sign * b->extras[i].amount;
    }
    for (uint32_t i = 0; i < ms_bundle_width(b); i++)
        hold_device(n, b, devices[i], sign);
}

void ms_bundle_hold(const struct ms_bundle *b,
                    struct ms_stock_node *n,
                    const uint32_t *devices)
{
    hold(b, n, devices, 1);
}

bool ms_bundle_take(const struct ms_bundle *b,
                    struct ms_stock_node *n,
                    uint32_t *devices)
{
    if (ms_bundle_room(b, n, 1) == 0)
        return false;
    if (b->share_milli)
        choose_share(b, n, devices);
    else if (b->devices)
        choose_whole(b, n, devices);
    ms_bundle_hold(b, n, devices);
    return true;
}

bool ms_bundle_take_at(const struct ms_bundle *b,
                       struct ms_stock_node *n,
                       uint32_t device)
{
    assert(b->share_milli);
    if (ms_bundle_room(b, n, 1) == 0 || !has_share(b, &n->devices[device]))
        return false;
    ms_bundle_hold(b, n, &device);
    return true;
}

void ms_bundle_give(const struct ms_bundle *b,
                    struct ms_stock_node *n,
                    const uint32_t *devices)
{
    assert(n->cpu_milli_held >= b->cpu_milli && n->memory_held >= b->memory);
    hold(b, n, devices, -1);
}
