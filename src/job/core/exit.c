/* exit.c - causes of ends, and when two errors are the same */
#include "job/core/core_impl.h"

#include <ctype.h>
#include <string.h>

enum { SIGNAL_BASE = 128, SIGKILL_NUMBER = 9, SIGTERM_NUMBER = 15 };

/* Exit codes by which programs of this field say what happened to them. */
static const struct {
    int code;
    enum ms_job_cause cause;
} codes[] = {
    {0, MS_JOB_SUCCEEDED},
    {14, MS_JOB_HARDWARE},  /* a device's infoROM is corrupted */
    {201, MS_JOB_HARDWARE}, /* a device's driver failed */
    {202, MS_JOB_HARDWARE}, /* memory of a device is still in use by nobody */
    {247, MS_JOB_OUT_OF_MEMORY},
};

const char *ms_job_cause_name(enum ms_job_cause c)
{
    static const char *const names[MS_JOB_CAUSES] = {
        [MS_JOB_CAUSE_NONE] = "none",
        [MS_JOB_SUCCEEDED] = "succeeded",
        [MS_JOB_APPLICATION] = "application error",
        [MS_JOB_OUT_OF_MEMORY] = "out of memory",
        [MS_JOB_PREEMPTED] = "killed or preempted",
        [MS_JOB_HARDWARE] = "hardware error",
        [MS_JOB_NODE_LOST] = "node lost",
        [MS_JOB_NO_HEARTBEAT] = "no heart-beat",
        [MS_JOB_CHECK_FAILED] = "node check failed",
        [MS_JOB_START_FAILED] = "start failed",
        [MS_JOB_HANG] = "hang",
        [MS_JOB_NO_CAPACITY] = "no capacity",
        [MS_JOB_STOPPED] = "stopped",
    };

    return (unsigned)c < MS_JOB_CAUSES ? names[c] : "?";
}

static enum ms_job_cause of_signal(int signal)
{
    return signal == SIGKILL_NUMBER || signal == SIGTERM_NUMBER ? MS_JOB_PREEMPTED
                                                                : MS_JOB_APPLICATION;
}

static enum ms_job_cause of_exit(const struct ms_job_exit *exit)
{
    if (exit->unreachable)
        return MS_JOB_NODE_LOST;
    if (exit->out_of_memory)
        return MS_JOB_OUT_OF_MEMORY;
    if (exit->signaled)
        return of_signal(exit->code);
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (codes[i].code == exit->code)
            return codes[i].cause;
    return exit->code > SIGNAL_BASE ? of_signal(exit->code - SIGNAL_BASE)
                                    : MS_JOB_APPLICATION;
}

enum ms_job_cause ms_job_classify(const struct ms_job_exit *exit)
{
    enum ms_job_cause cause = of_exit(exit);

    return cause == MS_JOB_APPLICATION && ms_job_find_hardware(exit->text)
               ? MS_JOB_HARDWARE
               : cause;
}

/* ---- the same error ---------------------------------------------------------------- */

static uint32_t hash_byte(uint32_t hash, char c)
{
    return (hash ^ (uint8_t)c) * UINT32_C(16777619);
}

/* Letters alone: numbers, addresses and times differ from rank to rank. */
static uint32_t hash_words(uint32_t hash, const char *at, const char *end)
{
    for (; at < end; at++) {
        if (at[0] == '0' && at + 1 < end && at[1] == 'x')
            for (at += 2; at < end && isxdigit((unsigned char)*at);)
                at++;
        if (at < end && isalpha((unsigned char)*at))
            hash = hash_byte(hash, *at);
    }
    return hash;
}

static uint32_t hash_all(uint32_t hash, const char *at, const char *end)
{
    for (; at < end; at++)
        hash = hash_byte(hash, *at);
    return hash;
}

/* Where it happened are the lines of a traceback that name a file; what happened is the last
 * line. */
uint32_t ms_error_mark(const char *text, int code)
{
    uint32_t hash = (UINT32_C(2166136261) ^ (uint32_t)code) * UINT32_C(16777619);
    const char *at = text ? text : "", *last = at, *last_end = at;

    while (*at) {
        const char *end = strchrnul(at, '\n');

        while (at < end && isspace((unsigned char)*at))
            at++;
        if (end - at > 6 && strncmp(at, "File \"", 6) == 0)
            hash = hash_all(hash, at, end);
        if (at < end) {
            last = at;
            last_end = end;
        }
        at = *end ? end + 1 : end;
    }
    hash = hash_words(hash, last, last_end);
    return hash ? hash : 1;
}

const char *ms_job_last_line(const char *text, int *len)
{
    const char *last = text, *end;

    *len = 0;
    for (const char *at = text; *at; at = *end ? end + 1 : end) {
        end = strchrnul(at, '\n');
        if (strspn(at, " \t\r\n") < (size_t)(end - at)) {
            last = at;
            *len = (int)(end - at);
        }
    }
    return last;
}

void ms_text_keep(char *out, size_t room, const char *text)
{
    const char *all = text ? text : "";
    size_t len = strlen(all);
    size_t from = len < room ? 0 : len - (room - 1);

    while (from > 0 && from < len && ((uint8_t)all[from] & 0xC0) == 0x80)
        from++; /* not within a character */
    memcpy(out, all + from, len - from + 1);
}
