/* doctor.h - the checks of `muster doctor`
 *
 * A check looks at one thing of this machine and fills a finding: what is there, and
 * what to do about it. It leaves nothing behind but the folder of the sessions, asks no
 * network, and ends soon.
 */
#ifndef MS_CLI_DOCTOR_DOCTOR_H
#define MS_CLI_DOCTOR_DOCTOR_H

enum ms_finding_level {
    MS_FINDING_OK,
    MS_FINDING_WARN, /* Muster runs; something will be slow, missing or short */
    MS_FINDING_FAIL  /* Muster cannot run like this */
};

struct ms_finding {
    const char *python; /* the interpreter to check; NULL: the one that is found */
    enum ms_finding_level level;
    const char *advice; /* what to do, a static text; NULL: nothing */
    char text[320];     /* what is there */
};

/* What is there, how bad that is, and what to do (NULL: nothing). */
void ms_finding_set(struct ms_finding *f,
                    enum ms_finding_level level,
                    const char *advice,
                    const char *fmt,
                    ...) __attribute__((format(printf, 4, 5)));
/* All is well with it. */
#define ms_finding_ok(f, ...) ms_finding_set(f, MS_FINDING_OK, NULL, __VA_ARGS__)

struct ms_check {
    const char *name; /* a stable word, for --json */
    void (*run)(struct ms_finding *f);
};

/* Each ends with one without a name. */
extern const struct ms_check ms_checks_muster[]; /* muster.c: what is Muster's own */
extern const struct ms_check ms_checks_host[];   /* host.c: what the machine gives */
extern const struct ms_check
    ms_checks_network[]; /* network.c: what lies between machines */

#endif
