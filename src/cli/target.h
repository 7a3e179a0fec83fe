/* target.h - which session, cluster and rank a command is about
 *
 * These print their own failure and return its exit code, so a command can say
 *     code = ms_target_session(cli, true, &session);
 *     if (code)
 *         return code;
 */
#ifndef MS_CLI_TARGET_H
#define MS_CLI_TARGET_H

#include "cli/cli.h"
#include "io/session.h"
#include "proto/muster.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

struct ms_sessions {
    struct ms_session *all; /* newest first */
    size_t count;
};

enum ms_exit ms_sessions_init(struct ms_sessions *s, const struct ms_cli *cli);
void ms_sessions_finish(struct ms_sessions *s);

/* The session of --session, else the newest that is alive, else (unless `alive`) the
 * newest that has ended. Borrowed from `s`. */
enum ms_exit ms_target_session(const struct ms_cli *cli,
                               const struct ms_sessions *s,
                               bool alive,
                               const struct ms_session **out);

/* --timeout, or 10 s. */
enum ms_exit ms_target_timeout(const struct ms_cli *cli, int64_t *timeout_ns);

/* Ask the session's head. Freed with muster__status__free_unpacked. */
enum ms_exit ms_target_status(const struct ms_cli *cli,
                              const struct ms_session *session,
                              int64_t timeout_ns,
                              Muster__Status **out);

/* CLUSTER or CLUSTER/RANK; "@node" behind a rank, as in log prefixes, is ignored. */
struct ms_selector {
    char cluster[MS_NAME_MAX + 1]; /* "": any */
    bool has_rank;
    uint32_t rank;
};

enum ms_exit
ms_selector_parse(const struct ms_cli *cli, const char *text, struct ms_selector *out);
bool ms_selector_matches(const struct ms_selector *s,
                         const char *cluster,
                         uint32_t rank);

/* "exit code 3", "killed by SIGKILL (out of memory)", "stopped", with what is known
 * beside; returns `out`. */
const char *ms_target_exit(const Muster__Exit *e, char *out, size_t room);

#endif
