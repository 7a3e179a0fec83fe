/* trace.h - the lines of a timeline as a trace that Perfetto opens
 *
 * The format is Chrome's trace events in JSON. A track "ROLE/RANK@NODE" becomes a thread
 * of the process ROLE. Spans of one thread have to lie within each other or apart, so
 * those that overlap are put on further threads of the same track ("lanes"); only spans
 * that say so ("nests") are put within others. Spans of the same flow are joined by
 * arrows, in the order of their beginnings. Times begin with the first event.
 */
#ifndef MS_CLI_TIMELINE_TRACE_H
#define MS_CLI_TIMELINE_TRACE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct ms_trace_event {
    int64_t begin_ns, end_ns;
    size_t order; /* of its line */
    uint32_t track, lane;
    json_t *line;
};

struct ms_trace_track {
    const char *name; /* of `tracks` */
    uint32_t process;
    uint32_t first, lanes; /* its threads */
};

struct ms_trace {
    struct ms_trace_event *events;
    size_t count, room;
    struct ms_trace_track *tracks;
    size_t track_count, track_room;
    json_t *by_name;   /* a track's name: its index */
    json_t *processes; /* a process's name: its number, in order */
    size_t spans, unreadable;
    int64_t unix_ns; /* at the first event, as far as that is known; else 0 */
    int64_t clock_ns;
};

/* 0 or -ENOMEM. */
int ms_trace_init(struct ms_trace *t);
void ms_trace_finish(struct ms_trace *t);

/* A line. What is none of a timeline is counted as unreadable. 0 or -ENOMEM. */
int ms_trace_add(struct ms_trace *t, const char *line, size_t len);

/* After all lines: the trace. 0, -ENOMEM, or -EIO: `out` cannot be written. */
int ms_trace_write(struct ms_trace *t, FILE *out);

/* From the first event to the last. */
int64_t ms_trace_length_ns(const struct ms_trace *t);

#endif
