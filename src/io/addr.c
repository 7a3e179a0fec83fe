/* addr.c - addresses as text: unix sockets and TCP */
#include "io/addr.h"
#include "base/buf.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char unix_prefix[] = "unix:";

#define DIGITS "0123456789"
#define NAME   DIGITS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_."

/* ---- pieces ----------------------------------------------------------------------- */

static int
parse_path(const char *text, size_t len, struct ms_addr *a, struct ms_error *err)
{
    if (len == 0 || text[0] != '/')
        return ms_error_set(err, -EINVAL, "the path of a unix socket begins with '/'");
    if (len > MS_SOCKET_PATH_MAX)
        return ms_error_set(err,
                            -ENAMETOOLONG,
                            "the path of a unix socket has %zu bytes, at most %zu are "
                            "possible",
                            len,
                            MS_SOCKET_PATH_MAX);
    a->is_unix = true;
    memcpy(a->name, text, len);
    return 0;
}

static int
parse_unix(const char *text, size_t len, struct ms_addr *a, struct ms_error *err)
{
    size_t prefix = sizeof unix_prefix - 1;

    text += prefix;
    len -= prefix;
    if (len <= MS_HOST_ID_LEN || text[MS_HOST_ID_LEN] != ':' ||
        strspn(text, "0123456789abcdef") < MS_HOST_ID_LEN)
        return ms_error_set(
            err, -EINVAL, "not unix:HOSTID:/path with a HOSTID of 16 hex digits");
    memcpy(a->host_id, text, MS_HOST_ID_LEN);
    return parse_path(text + MS_HOST_ID_LEN + 1, len - MS_HOST_ID_LEN - 1, a, err);
}

static int parse_port(
    const char *text, size_t len, bool listens, struct ms_addr *a, struct ms_error *err)
{
    unsigned long port = strtoul(text, NULL, 10);

    if (len == 0 || len > 5 || strspn(text, DIGITS) < len || port > 65535 ||
        (port == 0 && !listens))
        return ms_error_set(err, -EINVAL, "a port is a number from 1 to 65535");
    a->port = (uint16_t)port;
    return 0;
}

/* Between brackets: an IPv6 address, perhaps with a zone. */
static bool is_v6(const char *host, size_t len)
{
    char text[INET6_ADDRSTRLEN];
    const char *zone = memchr(host, '%', len);
    size_t digits = zone ? (size_t)(zone - host) : len;
    struct in6_addr in;

    if (ms_text_copy(text, sizeof text, host, digits) < 0 ||
        inet_pton(AF_INET6, text, &in) != 1)
        return false;
    /* the name of an interface */
    return !zone || (len - digits > 1 && len - digits <= 16 &&
                     strspn(zone + 1, NAME) >= len - digits - 1);
}

/* Names and IPv4. */
static bool is_name(const char *host, size_t len)
{
    return host[0] != '-' && host[0] != '.' && strspn(host, NAME) >= len;
}

static int check_host(
    const char *host, size_t len, bool bracketed, bool listens, struct ms_error *err)
{
    if (len > MS_HOST_MAX)
        return ms_error_set(err,
                            -ENAMETOOLONG,
                            "a host's name has %zu bytes, at most %zu are possible",
                            len,
                            MS_HOST_MAX);
    if (listens && !bracketed && (len == 0 || (len == 1 && host[0] == '*')))
        return 0;
    if (len == 0)
        return ms_error_set(err, -EINVAL, "no host");
    if (bracketed ? !is_v6(host, len) : !is_name(host, len))
        return ms_error_set(err,
                            -EINVAL,
                            bracketed ? "not an IPv6 address between the brackets"
                                      : "not a host (an IPv6 address needs brackets)");
    return 0;
}

static int parse_tcp(
    const char *text, size_t len, bool listens, struct ms_addr *a, struct ms_error *err)
{
    bool bracketed = text[0] == '[';
    const char *host = text + (bracketed ? 1 : 0);
    const char *end = bracketed ? memchr(text, ']', len) : memrchr(text, ':', len);
    const char *colon = bracketed && end ? end + 1 : end;
    int rc;

    if (!end || colon >= text + len || *colon != ':')
        return ms_error_set(err, -EINVAL, "not HOST:PORT, [V6]:PORT or /path");
    rc = check_host(host, (size_t)(end - host), bracketed, listens, err);
    if (rc == 0)
        rc = parse_port(colon + 1, (size_t)(text + len - colon - 1), listens, a, err);
    if (rc == 0)
        memcpy(a->name, host, (size_t)(end - host));
    return rc;
}

/* ---- addresses -------------------------------------------------------------------- */

static int parse_one(
    const char *text, size_t len, bool listens, struct ms_addr *a, struct ms_error *err)
{
    struct ms_addr got = {0};
    int rc;

    if (len == 0)
        return ms_error_set(err, -EINVAL, "an empty address");
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x21 || text[i] == 0x7f || text[i] == ',')
            return ms_error_set(
                err, -EINVAL, "an address with a space, comma or control character");
    if (text[0] == '/')
        rc = parse_path(text, len, &got, err);
    else if (strncmp(text, unix_prefix, sizeof unix_prefix - 1) == 0)
        rc = parse_unix(text, len, &got, err);
    else
        rc = parse_tcp(text, len, listens, &got, err);
    if (rc == 0)
        *a = got;
    else
        ms_error_wrap(err, "address '%.*s'", (int)(len < 200 ? len : 200), text);
    return rc;
}

int ms_addr_parse(const char *text, struct ms_addr *a, struct ms_error *err)
{
    return parse_one(text, strlen(text), false, a, err);
}

int ms_addr_parse_listen(const char *text, struct ms_addr *a, struct ms_error *err)
{
    return parse_one(text, strlen(text), true, a, err);
}

int ms_addr_list_parse(const char *text, struct ms_addr_list *l, struct ms_error *err)
{
    size_t count = 0;

    if (strlen(text) > MS_ADDR_LIST_MAX)
        return ms_error_set(err,
                            -ENAMETOOLONG,
                            "a list of addresses has more than %zu characters",
                            MS_ADDR_LIST_MAX);
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");
        int rc;

        if (count == MS_ADDRS_MAX)
            return ms_error_set(
                err, -E2BIG, "a list of more than %u addresses", MS_ADDRS_MAX);
        rc = parse_one(at, len, false, &l->at[count], err);
        if (rc < 0)
            return rc;
        count++;
        at += len;
        if (!*at)
            break;
    }
    l->count = count;
    return 0;
}

bool ms_addr_format(const struct ms_addr *a, char *out, size_t room)
{
    int n;

    if (a->is_unix && a->host_id[0])
        n = snprintf(out, room, "%s%s:%s", unix_prefix, a->host_id, a->name);
    else if (a->is_unix)
        n = snprintf(out, room, "%s", a->name);
    else if (strchr(a->name, ':'))
        n = snprintf(out, room, "[%s]:%u", a->name, a->port);
    else
        n = snprintf(out, room, "%s:%u", a->name, a->port);
    return n >= 0 && (size_t)n < room;
}

bool ms_addr_is_usable(const struct ms_addr *a)
{
    const char *here;

    if (!a->is_unix || !a->host_id[0])
        return true;
    here = ms_host_id();
    return here[0] && strcmp(here, a->host_id) == 0;
}
