/* report.c - what `muster run` says of itself, as text or as JSON */
#include "cli/run/run.h"

#include "base/clock.h"
#include "cli/out.h"
#include "io/proc.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>

int ms_run_signals(int *fd)
{
    signal(SIGPIPE, SIG_IGN);
    *fd = ms_signals_open((const int[]){SIGINT, SIGTERM, SIGHUP, 0}, NULL);
    return *fd < 0 ? *fd : 0;
}

void ms_run_mark(const struct ms_run_spec *r)
{
    if (r->is_inside)
        fputc(MS_RUN_MARK, r->out);
}

void ms_run_report_detail(const struct ms_run_spec *r, const char *text)
{
    ms_run_mark(r);
    fprintf(r->out, "  %s\n", text);
    fflush(r->out);
}

void ms_run_report(const struct ms_run_spec *r, json_t *object, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    ms_run_mark(r);
    if (!ms_cli_has(r->cli, MS_OPT_JSON) && n >= 0)
        fprintf(r->out, "muster run: %s\n", ms_out_clean(text));
    else if (object && json_dumpf(object, r->out, JSON_COMPACT) == 0)
        fputc('\n', r->out);
    json_decref(object);
    if (n >= 0)
        free(text);
    fflush(r->out);
}

static json_t *piece_json(const struct ms_lent_piece *p)
{
    json_t *devices = json_array(), *o;

    for (size_t i = 0; i < p->device_count; i++)
        json_array_append_new(devices, json_integer(p->devices[i]));
    o = MS_JSON({"number", json_integer(p->number)},
                {"phase", json_string(ms_phase_name(p->phase))},
                {"devices", devices});
    if (p->node)
        json_object_set_new(o, "node", json_string(p->node));
    return o;
}

void ms_run_report_piece(const struct ms_run_spec *r,
                         const struct ms_lent_piece *p,
                         int64_t at_ns)
{
    json_t *o = piece_json(p);
    bool has_ended = p->phase == MS_PHASE_ENDED;
    char when[32] = "";

    json_object_set_new(o, "event", json_string("piece"));
    if (at_ns >= 0) {
        json_object_set_new(o, "at_ns", json_integer(at_ns));
        snprintf(when, sizeof when, "%10.3f s  ", (double)at_ns / MS_NS_PER_S);
    }
    if (has_ended) {
        json_object_set_new(o, "cause", json_string(ms_cause_name(p->cause)));
        json_object_set_new(o, "code", json_integer(p->code));
        json_object_set_new(o, "detail", ms_json_string(p->detail ? p->detail : ""));
    }
    ms_run_report(r,
                  o,
                  "%snode %s is %s%s%s%s",
                  when,
                  p->node ? p->node : "(none yet)",
                  ms_phase_name(p->phase),
                  has_ended ? " (" : "",
                  has_ended ? ms_cause_name(p->cause) : "",
                  has_ended ? ")" : "");
}

/* Of many nodes the first ones. */
enum { SHOWN_MAX = 8 };

/* The CPUs of one that is elsewhere may not be known. */
static void report_node(const struct ms_run_spec *r, const struct ms_lent_piece *p)
{
    const struct ms_stock_node *n =
        p->node ? ms_stock_find(&r->nodes->stock, p->node) : NULL;

    ms_run_mark(r);
    fprintf(r->out, "  %-16s ", p->node ? p->node : "(no name)");
    if (n && n->cpu_milli < (uint64_t)MS_WHOLE_NODES_OPEN_CPUS * MS_WHOLE_MILLI)
        fprintf(
            r->out, "%llu CPUs, ", (unsigned long long)(n->cpu_milli / MS_WHOLE_MILLI));
    fprintf(r->out, "%zu device%s\n", p->device_count, p->device_count == 1 ? "" : "s");
}

void ms_run_report_reserved(const struct ms_run_spec *r,
                            const struct ms_reservation *got)
{
    json_t *all = json_array();

    for (size_t i = 0; i < got->count; i++)
        json_array_append_new(all, piece_json(got->pieces[i]));
    ms_run_report(
        r,
        json_pack(
            "{s:s, s:s, s:o}", "event", "reserved", "key", got->key, "pieces", all),
        "reserved %zu node%s for %s",
        got->count,
        got->count == 1 ? "" : "s",
        got->key);
    if (ms_cli_has(r->cli, MS_OPT_JSON))
        return;
    for (size_t i = 0; i < got->count && i < SHOWN_MAX; i++)
        report_node(r, got->pieces[i]);
    if (got->count > SHOWN_MAX) {
        ms_run_mark(r);
        fprintf(r->out, "  and %zu more\n", got->count - SHOWN_MAX);
    }
    fflush(r->out);
}
