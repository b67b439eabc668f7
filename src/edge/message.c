/* SPDX-License-Identifier: Apache-2.0 */
#include "edge/message_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ERROR_WORD "bad-broker-message"

json_t *message_number(uint64_t n)
{
    return json_integer((json_int_t)(n < MESSAGE_NUMBER_MAX ? n : MESSAGE_NUMBER_MAX));
}

char *message_text(json_t *message)
{
    char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;

    json_decref(message);
    return text;
}

void reader_complain(struct reader *r, const char *problem, const char *member)
{
    if (r->code == 0)
        r->code = error_set(r->err, -EINVAL, "%s: '%s' %s", r->what, member, problem);
}

json_t *reader_member(struct reader *r, const json_t *in, const char *name, bool needed)
{
    json_t *j = json_object_get(in, name);

    if (j && !json_is_null(j))
        return j;
    if (needed)
        reader_complain(r, "is missing", name);
    return NULL;
}

uint64_t reader_number_of(struct reader *r, const json_t *in, const char *name, uint64_t most)
{
    const json_t *j = reader_member(r, in, name, true);

    if (!j)
        return 0;
    if (!json_is_integer(j) || json_integer_value(j) < 0)
        reader_complain(r, "is no whole number from 0 on", name);
    else if ((uint64_t)json_integer_value(j) > most)
        reader_complain(r, "is too large", name);
    else
        return (uint64_t)json_integer_value(j);
    return 0;
}

uint64_t reader_number(struct reader *r, const char *name)
{
    return reader_number_of(r, r->message, name, MESSAGE_NUMBER_MAX);
}

bool reader_bool_of(struct reader *r, const json_t *in, const char *name)
{
    const json_t *j = reader_member(r, in, name, true);

    if (j && !json_is_boolean(j))
        reader_complain(r, "is neither true nor false", name);
    return json_is_true(j);
}

bool reader_bool(struct reader *r, const char *name)
{
    return reader_bool_of(r, r->message, name);
}

void reader_text_of(struct reader *r, const json_t *in, const char *name, char *ret, size_t size)
{
    const json_t *j = reader_member(r, in, name, true);
    const char *text = json_string_value(j);

    if (!j)
        return;
    if (!text || json_string_length(j) != strlen(text)) {
        reader_complain(r, "is no text", name);
        return;
    }
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) {
            reader_complain(r, "has a control character", name);
            return;
        }
    if ((size_t)snprintf(ret, size, "%s", text) >= size)
        reader_complain(r, "is too long", name);
}

void reader_text(struct reader *r, const char *name, char *ret, size_t size)
{
    reader_text_of(r, r->message, name, ret, size);
}

uint32_t reader_word(struct reader *r, const json_t *in, const char *name,
                     const char *(*name_of)(uint32_t), uint32_t count)
{
    char word[MESSAGE_WORD_MAX] = "";

    reader_text_of(r, in, name, word, sizeof(word));
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(word, name_of(i)) == 0)
            return i;
    reader_complain(r, "is an unknown word", name);
    return 0;
}

void reader_open(struct reader *r, const char *what, const void *bytes, size_t len, size_t most,
                 struct error *err)
{
    json_error_t problem;

    *r = (struct reader){.what = what, .err = err};
    if (len > most) {
        r->code = error_set(err, -EINVAL, "%s: %zu bytes are more than %zu", what, len, most);
        return;
    }
    r->message = json_loadb(bytes, len, JSON_REJECT_DUPLICATES, &problem);
    if (!r->message)
        r->code = error_set(err, -EINVAL, "%s: no JSON: %s at byte %d", what, problem.text,
                            problem.position);
    else if (!json_is_object(r->message))
        r->code = error_set(err, -EINVAL, "%s: no JSON object", what);
    else if (reader_number(r, "v") != MESSAGE_VERSION)
        reader_complain(r, "is an unknown version", "v");
}

int reader_close(struct reader *r)
{
    json_decref(r->message);
    return r->code;
}
