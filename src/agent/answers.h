/* answers.h - each request of a head is done once, however often it is asked
 *
 * A head whose link broke asks again what was not answered. A request that is under way
 * is then left alone, one that was answered is answered the same again. Numbers belong
 * to one process of a head: another one begins anew, and what the old one had asked is
 * answered to nobody. So inside the agent a request goes by a number of our own.
 */
#ifndef MS_AGENT_ANSWERS_H
#define MS_AGENT_ANSWERS_H

#include "base/map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MS_ANSWERS_KEPT = 256 };

enum ms_answers_is { MS_ANSWERS_NEW, MS_ANSWERS_UNDER_WAY, MS_ANSWERS_KNOWN };

struct ms_answers {
    uint64_t head; /* whose numbers */
    struct ms_map by_request, by_number;
    uint64_t last_number;
    struct ms_answer
        *ring[MS_ANSWERS_KEPT]; /* answered ones, oldest first from `next` */
    unsigned next;
};

void ms_answers_init(struct ms_answers *a);
void ms_answers_finish(struct ms_answers *a);

/* Whose requests follow: those of another head are forgotten. */
void ms_answers_set_head(struct ms_answers *a, uint64_t head);

/* A request has come. NEW: *number is ours for it (0: no memory, it cannot be answered).
 * KNOWN: *data is its answer, borrowed until the next call. */
enum ms_answers_is ms_answers_ask(struct ms_answers *a,
                                  uint64_t request,
                                  uint64_t *number,
                                  const uint8_t **data,
                                  size_t *len);

/* The head's number for ours; 0: its head is gone. */
uint64_t ms_answers_request(const struct ms_answers *a, uint64_t number);

/* It is answered; a copy is kept, the oldest goes. */
void ms_answers_put(struct ms_answers *a,
                    uint64_t number,
                    const uint8_t *data,
                    size_t len);

#endif
