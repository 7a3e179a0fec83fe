/* loop.h - the event loop: descriptors, timers, and work posted from other threads
 *
 * A loop belongs to the thread that runs it. Everything here is called on that thread,
 * except ms_loop_post and ms_loop_stop, which any thread may call. Callbacks may finish
 * the watch or timer that called them. Watches and timers are embedded in their owner
 * (init/finish); finish is idempotent and also works on zeroed memory.
 */
#ifndef MS_IO_LOOP_H
#define MS_IO_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct event;
struct ms_loop;

enum { MS_READ = 1, MS_WRITE = 2 };

struct ms_loop *ms_loop_create(void);
/* The loop must not be running. Posted work that has not run is dropped. */
void ms_loop_destroy(struct ms_loop *loop);

/* Run until ms_loop_stop. 0 or a negative errno. */
int ms_loop_run(struct ms_loop *loop);
/* Run what is ready now, without waiting (tests). */
int ms_loop_run_once(struct ms_loop *loop, bool wait);
void ms_loop_stop(struct ms_loop *loop);

/* Run fn(arg) on the loop's thread, in the order of posting. -ENOMEM or 0. */
int ms_loop_post(struct ms_loop *loop, void (*fn)(void *arg), void *arg);

struct ms_watch {
    struct event *event; /* NULL: not initialised */
    struct ms_loop *loop;
    int fd;
    unsigned events;
    void (*on_ready)(void *arg, unsigned events);
    void *arg;
};

/* Watch a descriptor (level-triggered). `events` may be 0: nothing until ms_watch_set.
 * The descriptor stays the caller's. */
int ms_watch_init(struct ms_watch *w,
                  struct ms_loop *loop,
                  int fd,
                  unsigned events,
                  void (*on_ready)(void *arg, unsigned events),
                  void *arg);
int ms_watch_set(struct ms_watch *w, unsigned events);
void ms_watch_finish(struct ms_watch *w);

struct ms_timer {
    struct event *event;
    void (*on_time)(void *arg);
    void *arg;
};

int ms_timer_init(struct ms_timer *t,
                  struct ms_loop *loop,
                  void (*on_time)(void *arg),
                  void *arg);
/* Fire once, after `delay_ns` (again: moves it). */
int ms_timer_set(struct ms_timer *t, int64_t delay_ns);
void ms_timer_cancel(struct ms_timer *t);
void ms_timer_finish(struct ms_timer *t);

#endif
