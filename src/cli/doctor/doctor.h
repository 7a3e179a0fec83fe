/* doctor.h - the checks of `muster doctor`
 *
 * A check looks at one thing of this machine and fills a finding: what is there, and
 * what to do about it. It leaves nothing behind but the folder of the sessions, asks no
 * network, and ends soon.
 */
#ifndef MS_CLI_DOCTOR_DOCTOR_H
#define MS_CLI_DOCTOR_DOCTOR_H

#include "cli/cli.h"

enum ms_finding_level {
    MS_FINDING_OK,
    MS_FINDING_WARN, /* Muster runs; something will be slow, missing or short */
    MS_FINDING_FAIL  /* Muster cannot run like this */
};

struct ms_finding {
    enum ms_finding_level level;
    char text[320];   /* what is there */
    char advice[320]; /* what to do; "": nothing */
};

struct ms_check {
    const char *name; /* a stable word, for --json */
    void (*run)(const struct ms_cli *cli, struct ms_finding *f);
};

/* Fill a finding; `advice` may be NULL. */
void ms_finding_set(struct ms_finding *f,
                    enum ms_finding_level level,
                    const char *advice,
                    const char *fmt,
                    ...) __attribute__((format(printf, 4, 5)));

/* muster.c: what is Muster's own. */
void ms_check_python(const struct ms_cli *cli, struct ms_finding *f);
void ms_check_root(const struct ms_cli *cli, struct ms_finding *f);
void ms_check_sessions(const struct ms_cli *cli, struct ms_finding *f);
void ms_check_disk(const struct ms_cli *cli, struct ms_finding *f);

/* host.c: what the machine gives. */
void ms_check_pidfd(const struct ms_cli *cli, struct ms_finding *f);
void ms_check_descriptors(const struct ms_cli *cli, struct ms_finding *f);
void ms_check_shm(const struct ms_cli *cli, struct ms_finding *f);
void ms_check_clock(const struct ms_cli *cli, struct ms_finding *f);
void ms_check_devices(const struct ms_cli *cli, struct ms_finding *f);
void ms_check_cores(const struct ms_cli *cli, struct ms_finding *f);
void ms_check_memory_limits(const struct ms_cli *cli, struct ms_finding *f);

/* network.c: what lies between machines. */
void ms_check_network(const struct ms_cli *cli, struct ms_finding *f);
void ms_check_ipv6(const struct ms_cli *cli, struct ms_finding *f);
void ms_check_tls(const struct ms_cli *cli, struct ms_finding *f);
void ms_check_host_id(const struct ms_cli *cli, struct ms_finding *f);

#endif
