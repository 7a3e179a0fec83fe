/* log.c - the own log of an agent: a file, a terminal, or JSON */
#include "agent/agent_impl.h"
#include "base/clock.h"
#include "base/timestamp.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TEXT_MAX = 1024 };

static bool is_foreground, is_json;
static const char *
    said_by; /* a node's name before each line; NULL: one agent alone writes this log */

void ms_agent_log_as(const char *node)
{
    said_by = node;
}

void ms_agent_log_to_terminal(bool json)
{
    is_foreground = true;
    is_json = json;
}

static void print_json(json_t *event, const char *text)
{
    char *line;

    if (!event)
        event = json_pack("{s:s}", "event", "said");
    json_object_set_new(event, "message", ms_json_string(text));
    line = json_dumps(event, JSON_COMPACT);
    if (line)
        dprintf(STDOUT_FILENO, "%s\n", line);
    free(line);
    json_decref(event);
}

static void print(json_t *event, const char *text)
{
    struct ms_timestamp now = {0};

    if (is_json) {
        print_json(event, text);
        return;
    }
    json_decref(event);
    if (is_foreground) {
        dprintf(STDERR_FILENO, "muster agent: %s\n", text);
        return;
    }
    ms_timestamp_set(&now, ms_wall_ns());
    dprintf(STDERR_FILENO,
            "%s%s%s%s\n",
            now.text,
            said_by ? said_by : "",
            said_by ? " " : "",
            text);
}

void ms_agent_log_event(json_t *event, const char *fmt, ...)
{
    char text[TEXT_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    print(event, text);
}
