/* out.c - what people and programs read of a command */
#include "cli/out.h"
#include "base/clock.h"

#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool ms_out_is_colour(FILE *f)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");

    return isatty(fileno(f)) && !(no_color && no_color[0]) && term &&
           strcmp(term, "dumb") != 0;
}

bool ms_out_is_closed(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};

    return poll(&p, 1, 0) == 1 && (p.revents & (POLLERR | POLLHUP));
}

void ms_out_style(const char *style)
{
    if (style && ms_out_is_colour(stdout))
        printf("\033[%sm", style);
}

void ms_out_plain(void)
{
    if (ms_out_is_colour(stdout))
        fputs("\033[0m", stdout);
}

static enum ms_exit fail_memory(void)
{
    fputs("muster: out of memory\n", stderr);
    return MS_EXIT_FAILED;
}

enum ms_exit ms_out_grid(struct ms_grid *g)
{
    struct ms_buf text = {0};
    int rc;

    g->colour = ms_out_is_colour(stdout);
    rc = ms_grid_print(g, &text);
    if (rc == 0)
        fwrite(text.data, 1, text.len, stdout);
    ms_buf_finish(&text);
    ms_grid_finish(g);
    return rc == 0 ? MS_EXIT_OK : fail_memory();
}

enum ms_exit ms_out_json(json_t *value)
{
    int rc = value ? json_dumpf(value, stdout, JSON_INDENT(2)) : -1;

    json_decref(value);
    if (rc < 0)
        return fail_memory();
    putchar('\n');
    return MS_EXIT_OK;
}

char *ms_out_clean(char *text)
{
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = '?';
    return text;
}

enum ms_exit
ms_out_fail(const struct ms_cli *cli, enum ms_exit code, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return fail_memory();
    fflush(stdout);
    if (ferror(stdout) && ms_out_is_closed(STDOUT_FILENO)) {
        free(text); /* the reader has closed our output: not worth a message */
        return code;
    }
    fprintf(stderr, "muster %s: %s\n", cli->command->name, ms_out_clean(text));
    if (ms_cli_has(cli, MS_OPT_JSON))
        ms_out_json(MS_JSON({"error",
                             MS_JSON({"exit_code", json_integer(code)},
                                     {"message", ms_json_string(text)})}));
    free(text);
    return code;
}

const char *ms_out_duration(uint64_t ns, char out[24])
{
    static const struct {
        uint64_t seconds, below;
        const char *big, *small;
    } units[] = {{86400, 3600, "d", "h"}, {3600, 60, "h", "m"}, {60, 1, "m", "s"}};
    uint64_t s = ns / (uint64_t)MS_NS_PER_S;

    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (s >= units[i].seconds) {
            snprintf(out,
                     24,
                     "%llu%s%02llu%s",
                     (unsigned long long)(s / units[i].seconds),
                     units[i].big,
                     (unsigned long long)(s % units[i].seconds / units[i].below),
                     units[i].small);
            return out;
        }
    snprintf(out, 24, "%llus", (unsigned long long)s);
    return out;
}

const char *ms_out_moment(uint64_t ns, char out[24])
{
    if (ns >= 10 * (uint64_t)MS_NS_PER_S)
        return ms_out_duration(ns, out);
    if (ns < (uint64_t)MS_NS_PER_MS)
        snprintf(out, 24, "%lluus", (unsigned long long)(ns / (uint64_t)MS_NS_PER_US));
    else if (ns < (uint64_t)MS_NS_PER_S)
        snprintf(out, 24, "%llums", (unsigned long long)(ns / (uint64_t)MS_NS_PER_MS));
    else
        snprintf(out, 24, "%.1fs", (double)ns / (double)MS_NS_PER_S);
    return out;
}
