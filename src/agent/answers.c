#include "agent/answers.h"
#include "base/cleanup.h"

#include <string.h>

struct ms_answer {
    uint64_t request, number;
    uint8_t *data; /* NULL: under way */
    size_t len;
};

void ms_answers_init(struct ms_answers *a)
{
    *a = (struct ms_answers){0};
    ms_map_init(&a->by_request);
    ms_map_init(&a->by_number);
}

static void answer_free(struct ms_answer *x)
{
    if (x)
        free(x->data);
    free(x);
}

static void forget_all(struct ms_answers *a)
{
    struct ms_answer *x;
    size_t at = 0;

    while ((x = ms_map_next(&a->by_request, &at)))
        answer_free(x);
    ms_map_finish(&a->by_request);
    ms_map_finish(&a->by_number);
    memset(a->ring, 0, sizeof a->ring);
}

void ms_answers_finish(struct ms_answers *a)
{
    forget_all(a);
}

void ms_answers_set_head(struct ms_answers *a, uint64_t head)
{
    if (a->head == head)
        return;
    forget_all(a);
    a->head = head;
}

enum ms_answers_is ms_answers_ask(struct ms_answers *a,
                                  uint64_t request,
                                  uint64_t *number,
                                  const uint8_t **data,
                                  size_t *len)
{
    struct ms_answer *x = ms_map_find(&a->by_request, request);

    if (x && !x->data)
        return MS_ANSWERS_UNDER_WAY;
    if (x) {
        *data = x->data;
        *len = x->len;
        return MS_ANSWERS_KNOWN;
    }
    *number = 0;
    x = calloc(1, sizeof *x);
    if (!x)
        return MS_ANSWERS_NEW;
    x->request = request;
    x->number = ++a->last_number;
    if (ms_map_add(&a->by_request, request, x) < 0) {
        free(x);
    } else if (ms_map_add(&a->by_number, x->number, x) < 0) {
        ms_map_remove(&a->by_request, request);
        free(x);
    } else {
        *number = x->number;
    }
    return MS_ANSWERS_NEW;
}

uint64_t ms_answers_request(const struct ms_answers *a, uint64_t number)
{
    const struct ms_answer *x = ms_map_find(&a->by_number, number);

    return x ? x->request : 0;
}

void ms_answers_put(struct ms_answers *a,
                    uint64_t number,
                    const uint8_t *data,
                    size_t len)
{
    struct ms_answer *x = ms_map_find(&a->by_number, number);
    struct ms_answer **oldest = &a->ring[a->next];
    uint8_t *copy = malloc(len ? len : 1);

    if (!x || x->data || !copy) { /* of another head, or no memory */
        free(copy);
        return;
    }
    memcpy(copy, data, len);
    x->data = copy;
    x->len = len;
    if (*oldest) {
        ms_map_remove(&a->by_request, (*oldest)->request);
        ms_map_remove(&a->by_number, (*oldest)->number);
        answer_free(*oldest);
    }
    *oldest = x;
    a->next = (a->next + 1) % MS_ANSWERS_KEPT;
}
