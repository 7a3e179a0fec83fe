/* redial.h - the link of an agent or a driver to its head: dialled again whenever it breaks
 *
 * There are two lines: the one that is up, and the one that is being dialled. They exist side
 * by side while the first is silent; whichever brings word first is kept. A line is up once
 * the head's answer to our hello was good: the owner reads that and says ms_redial_welcome or
 * ms_redial_refuse.
 *
 * Attempts that fail are followed by others, 10 ms later at first and MS_REDIAL_MAX_NS at
 * last, for as long as the owner says so. Used on the loop's thread only.
 */
#ifndef MS_WIRE_LINK_REDIAL_H
#define MS_WIRE_LINK_REDIAL_H

#include "wire/link/link.h"

struct ms_redial;

struct ms_redial_line {
    struct ms_redial *redial;
    struct ms_link *link; /* NULL: no line */
    bool is_hello_sent;
    int64_t hello_ns; /* when */
};

/* All of them may call ms_redial_close. */
struct ms_redial_ops {
    /* Both sides have proven the secret: say hello. 0 or a negative errno. */
    int (*on_open)(void *arg, struct ms_link *link);
    /* A message on a line that is not up: the answer to hello. */
    void (*on_greeting)(void *arg,
                        struct ms_redial_line *line,
                        const uint8_t *body,
                        size_t len);
    /* A message on the line that is up. False: it is none, and the line is dropped. */
    bool (*on_body)(void *arg, const uint8_t *body, size_t len);
    /* The line that was up is closed, or has been silent since `since_ns` and stays up
     * (ms_redial_link). Dial again? */
    bool (*on_lost)(void *arg, int64_t since_ns, const struct ms_error *why);
    /* The silent one is heard again. */
    void (*on_back)(void *arg);
    /* An attempt has come to nothing. Make another one? */
    bool (*on_failed)(void *arg, const struct ms_error *why);
};

struct ms_redial {
    struct ms_loop *loop;
    struct ms_link_dial dial;
    const struct ms_redial_ops *ops;
    void *arg;
    struct ms_redial_line lines[2], *up; /* NULL: none is up */
    struct ms_timer retry; /* dial, or wait no longer for the answer to hello */
    int64_t backoff_ns;
    bool is_stopped;
};

/* `dial`: its texts are borrowed; its deadline is that of all attempts, and may be changed
 * later in redial->dial. */
int ms_redial_init(struct ms_redial *r,
                   struct ms_loop *loop,
                   const struct ms_link_dial *dial,
                   const struct ms_redial_ops *ops,
                   void *arg);
/* The first attempt; on_failed may be called before this has returned. */
void ms_redial_start(struct ms_redial *r);
/* Dial no more; the line that is up stays. */
void ms_redial_stop(struct ms_redial *r);
/* The same, and the lines are closed: the head takes it for our end. */
void ms_redial_close(struct ms_redial *r);
void ms_redial_finish(struct ms_redial *r);

/* In on_greeting: this line is up now, and the other one dropped. */
void ms_redial_welcome(struct ms_redial_line *line);
/* In on_greeting: the head does not want us now. Drop the line and dial again, later. */
void ms_redial_refuse(struct ms_redial_line *line);
/* The link that is up, silent or not; NULL: none is. */
struct ms_link *ms_redial_link(const struct ms_redial *r);

#endif
