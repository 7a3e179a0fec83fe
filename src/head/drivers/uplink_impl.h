/* uplink_impl.h - the inside of a head that has joined another one; see uplink.h
 *
 *   AWAY -> READY -> AWAY ...   -> LOST
 *
 * Requests (wire/link/requests.h) are sent while a link is up (wire/link/redial.h), also while
 * that is silent and the head therefore AWAY, and once more when another one is. The head tells by its id whether it
 * is the same process as before: that one knows what it has carried out (driver.h), another
 * one does not.
 */
#ifndef MS_HEAD_DRIVERS_UPLINK_IMPL_H
#define MS_HEAD_DRIVERS_UPLINK_IMPL_H

#include "base/error.h"
#include "base/list.h"
#include "base/map.h"
#include "head/drivers/uplink.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"
#include "wire/link/redial.h"
#include "wire/link/requests.h"

#include <stdbool.h>
#include <stdint.h>

enum ms_uplink_state {
    MS_UPLINK_AWAY, /* not joined yet, silent, or its link is broken */
    MS_UPLINK_READY,
    MS_UPLINK_LOST
};

struct ms_uplink {
    struct ms_head *head;
    _Atomic enum ms_uplink_state state; /* read by those who wait, too */
    char *addresses;
    bool is_patient; /* the head is waited for, also before we joined */
    bool is_tool; /* without patience it does not wait for one that was there either */
    Muster__DriverToHead *hello;
    struct ms_redial redial;
    uint64_t head_id;            /* that welcomed us last; 0: none has */
    struct ms_requests requests; /* operations that the head has not answered */
    struct ms_map workers;       /* uid -> whether it lives (uplink_ask.c) */
    struct ms_list groups;       /* ms_kept_group: that we have */
    struct ms_head_op *start_op; /* until we are welcomed for the first time */
    struct ms_timer stop_timer;
    struct ms_error why; /* of the last break; once LOST: for people */
};

/* uplink_ask.c */
/* After a welcome: all that has no answer, once more. `is_new`: to another process. */
void ms_uplink_resend(struct ms_uplink *u, bool is_new);
/* on_body of its link: a message from the head; false: it is none. */
bool ms_uplink_read(void *arg, const uint8_t *body, size_t len);
void ms_uplink_fail_open(struct ms_uplink *u, const struct ms_error *why);

/* Nobody can say how they ended, but they do: agents miss the head too. */
void ms_uplink_lose_workers(struct ms_uplink *u, const char *why);

/* uplink.c */
/* All that is open fails; the start, if it was still under way, with `why` itself. */
void ms_uplink_lose(struct ms_uplink *u, const struct ms_error *why);

#endif
