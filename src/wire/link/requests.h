/* requests.h - requests over a link that may break: each is carried out and answered once
 *
 * The asking side (struct ms_requests) numbers its requests from 1 and keeps each one until
 * it is answered or given up. When the link was made anew it sends all open ones again, in
 * order. Every request also tells which answers have arrived: all up to a watermark (the
 * lowest open number, less one), and single ones above it.
 *
 * The answering side (struct ms_replies) carries each number out once. One that comes again
 * is under way, or is answered the same again, or was settled. An answer is kept until its
 * arrival was told, and freed then; nothing else makes it go.
 *
 * Numbers belong to one instance of the asking side: another one begins anew, and what the
 * one before had asked is answered to nobody. Inside of the answering side a request
 * therefore goes by an id that no two instances share.
 *
 * Pure: no link, no time. Each side is used by one thread.
 */
#ifndef MS_WIRE_LINK_REQUESTS_H
#define MS_WIRE_LINK_REQUESTS_H

#include "base/list.h"
#include "base/map.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- asking ---------------------------------------------------------------------- */

/* One open request; part of what its owner keeps of it. */
struct ms_pending {
    struct ms_list link;
    uint64_t number; /* 0: not asked */
};

struct ms_requests {
    struct ms_list open; /* ms_pending, oldest first: the order of sending again */
    struct ms_map by_number;
    uint64_t last;     /* number */
    uint64_t *arrived; /* answers above the watermark that were not told yet */
    size_t arrived_count, arrived_room;
};

void ms_requests_init(struct ms_requests *r);
void ms_requests_finish(struct ms_requests *r);

/* Number it and keep it open. 0 or -ENOMEM. */
int ms_requests_add(struct ms_requests *r, struct ms_pending *p);
/* NULL: it is not open. */
struct ms_pending *ms_requests_find(const struct ms_requests *r, uint64_t number);
/* It was answered, or nobody waits for it any more. One that is not open is left alone. */
void ms_requests_remove(struct ms_requests *r, struct ms_pending *p);
/* The answers to all numbers up to this one have arrived, or nobody waits for them. */
uint64_t ms_requests_watermark(const struct ms_requests *r);
/* A message with the watermark and all of `arrived` was sent. */
void ms_requests_told(struct ms_requests *r);

/* ---- answering ------------------------------------------------------------------- */

struct ms_reply {
    struct ms_list link; /* replies->all */
    uint64_t number;
    uint8_t *data; /* packed; NULL: under way */
    size_t len;
};

struct ms_replies {
    uint64_t asker;  /* instance whose numbers these are; 0: there was none */
    uint64_t base;   /* number n has the id base + n */
    uint64_t newest; /* number of this asker */
    uint64_t watermark;
    struct ms_list all;
    struct ms_map by_number;
};

void ms_replies_init(struct ms_replies *r);
void ms_replies_finish(struct ms_replies *r);

/* The requests of this instance follow; those of another are forgotten. */
void ms_replies_set_asker(struct ms_replies *r, uint64_t asker);

/* What the asker has told with a request. */
void ms_replies_settle(struct ms_replies *r,
                       uint64_t watermark,
                       const uint64_t *arrived,
                       size_t count);
/* A request has come. 1: it is new, to be carried out, and called *id. 0: it is not; if it
 * was answered *kept is that answer (borrowed), to be sent again, and else NULL. -ENOMEM:
 * as if it had not come. */
int ms_replies_begin(struct ms_replies *r,
                     uint64_t number,
                     uint64_t *id,
                     const struct ms_reply **kept);
/* The asker's number of this request; 0: who asked is gone. */
uint64_t ms_replies_number(const struct ms_replies *r, uint64_t id);
/* The answer to this number: packed, and kept if the asker waits for it. Borrowed until it
 * is settled; NULL: not kept (or no memory), send `m` itself. */
const struct ms_reply *
ms_replies_keep(struct ms_replies *r, uint64_t number, const ProtobufCMessage *m);
/* Its answer is not kept: the request changes nothing and may be carried out again. */
void ms_replies_forget(struct ms_replies *r, uint64_t number);

#endif
