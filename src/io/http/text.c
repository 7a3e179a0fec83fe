/* text.c - the characters and numbers of HTTP/1.1 */
#include "io/http/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DIGITS  "0123456789"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

bool ms_http_is_token(const char *text)
{
    return *text && !text[strspn(text, DIGITS LETTERS "!#$%&'*+-.^_`|~")];
}

bool ms_http_is_target(const char *text)
{
    if (!*text)
        return false;
    for (; *text; text++)
        if (*text <= ' ' || *text >= 0x7f)
            return false;
    return true;
}

bool ms_http_is_value(const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if ((c < ' ' && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

void ms_http_lower(char *text)
{
    for (; *text; text++)
        if (*text >= 'A' && *text <= 'Z')
            *text = (char)(*text + 'a' - 'A');
}

char *ms_http_trim(char *text)
{
    size_t len;

    text += strspn(text, " \t");
    len = strlen(text);
    while (len && (text[len - 1] == ' ' || text[len - 1] == '\t'))
        len--;
    text[len] = 0;
    return text;
}

bool ms_http_parse_decimal(const char *text, uint64_t *out)
{
    uint64_t value;

    if (!*text || text[strspn(text, DIGITS)])
        return false;
    errno = 0;
    value = strtoull(text, NULL, 10);
    if (errno)
        return false;
    *out = value;
    return true;
}

bool ms_http_parse_chunk_size(const char *text, uint64_t *out)
{
    size_t digits = strspn(text, DIGITS "abcdefABCDEF");

    if (!digits || digits > 15 || (text[digits] && text[digits] != ';'))
        return false;
    *out = strtoull(text, NULL, 16);
    return true;
}

bool ms_http_list_has(const char *list, const char *word)
{
    size_t len = strlen(word);

    while (*list) {
        size_t n = strcspn(list, ","), skip = strspn(list, " \t");
        size_t end = n;

        while (end > skip && (list[end - 1] == ' ' || list[end - 1] == '\t'))
            end--;
        if (end >= skip && end - skip == len &&
            strncasecmp(list + skip, word, len) == 0)
            return true;
        list += n;
        list += *list == ',';
    }
    return false;
}

const char *ms_http_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } table[] = {{200, "OK"},
                 {202, "Accepted"},
                 {204, "No Content"},
                 {400, "Bad Request"},
                 {401, "Unauthorized"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {408, "Request Timeout"},
                 {409, "Conflict"},
                 {413, "Content Too Large"},
                 {414, "URI Too Long"},
                 {415, "Unsupported Media Type"},
                 {417, "Expectation Failed"},
                 {429, "Too Many Requests"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {502, "Bad Gateway"},
                 {503, "Service Unavailable"},
                 {504, "Gateway Timeout"},
                 {505, "HTTP Version Not Supported"},
                 {507, "Insufficient Storage"}};

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].status == status)
            return table[i].reason;
    return "Unknown";
}
