/* client_impl.h - what the two halves of the client share
 *
 * client.c  what is held
 * talk.c    messages to and from the agent
 */
#ifndef MS_STORE_CLIENT_IMPL_H
#define MS_STORE_CLIENT_IMPL_H

#include "base/list.h"
#include "base/map.h"
#include "store/client.h"

#include <pthread.h>

struct ms_store_client {
    int fd; /* -1: closed */
    bool is_forgotten;
    bool (*is_interrupted)(void);
    uint64_t node, holder, limit, size;
    char *address;
    uint8_t *write_map;
    const uint8_t *read_map;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t news;
    unsigned refs;             /* the owner, and each held object */
    struct ms_map held;        /* by key */
    struct ms_held **by_place; /* those with bytes, by their place in the arena */
    size_t place_count, place_room;
    uint64_t next_request;
    bool is_read; /* somebody reads the socket */
    struct ms_list waiting;
    bool *is_touched; /* by blocks: our writing map has its pages */
};

/* Messages may be sent by any thread. 0 or a negative errno; waits for room. */
int ms_talk_send(struct ms_store_client *c, const Muster__StoreAsk *m);
/* Send and wait for the answer; NULL and the reason, also if the answer is a Failure. */
Muster__StoreAnswer *
ms_talk_ask(struct ms_store_client *c, Muster__StoreAsk *m, struct ms_error *err);
/* Connect, prove the secret, say who we are; the arena's descriptor is in *arena. */
Muster__StoreAnswer *ms_talk_open(struct ms_store_client *c,
                                  const struct ms_store_client_options *o,
                                  int *arena,
                                  struct ms_error *err);
/* An answer that nobody waits for any more has given us counts. */
void ms_store_refuse_answer(struct ms_store_client *c, const Muster__StoreAnswer *m);

#endif
